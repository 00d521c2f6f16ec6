#!/bin/sh
# Makes sure that Rocq (coqc) and Flocq are there: installs Debian's packages if they are missing and we may.
set -eu

ready() {
  command -v coqc > /dev/null && command -v coq_makefile > /dev/null || return 1
  folder=$(mktemp -d)
  echo 'From Flocq Require Import Core BinarySingleNaN.' > "$folder/Probe.v"
  status=0
  coqc -q "$folder/Probe.v" > /dev/null 2>&1 || status=1
  rm -rf "$folder"
  return $status
}

if ready; then exit 0; fi
packages='coq libcoq-flocq'
if ! command -v apt-get > /dev/null; then
  echo "Rocq/Coq 8.16 and Flocq 4.1 are needed; on Debian or Ubuntu: apt-get install $packages" >&2
  exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
  echo "Rocq and Flocq are missing; install them with: sudo apt-get install --no-install-recommends $packages" >&2
  exit 1
fi
install() { DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $packages; }
install || { apt-get update && install; }
ready || { echo "$packages are installed, but coqc does not find Flocq" >&2; exit 1; }
