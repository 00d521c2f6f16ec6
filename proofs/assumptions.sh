#!/bin/sh
# Compiles a file of `Print Assumptions` commands, shows what they print, and fails if an axiom is not one of those
# of the real numbers, or if a proof of this folder was left open.
#   sh assumptions.sh FILE.v
set -eu
folder=$(cd "$(dirname "$0")" && pwd)
allowed='ClassicalDedekindReals.sig_not_dec
ClassicalDedekindReals.sig_forall_dec
FunctionalExtensionality.functional_extensionality_dep
Classical_Prop.classic'

if grep -nwE 'Admitted|admit|Axiom|Axioms|Parameter|Parameters|Conjecture' "$folder"/[A-Z]*.v; then
  echo "a proof is open, or something is assumed" >&2
  exit 1
fi
printed=$(coqc -q -Q "$folder" Transductor "$1")
# An axiom's name begins its line; its type may follow on the same line or on indented ones.
axioms=$(printf '%s\n' "$printed" | sed -n 's/^\([A-Za-z_][A-Za-z0-9_.]*\)\( :.*\)\{0,1\}$/\1/p' | sort -u)
statements=$(printf '%s\n' "$printed" | grep -cE '^(Axioms:|Closed under the global context)$' || true)
if [ "$statements" -eq 0 ]; then
  echo "$1 prints no assumptions" >&2
  exit 1
fi
for axiom in $axioms; do
  if ! printf '%s\n' "$allowed" | grep -qxF "$axiom"; then
    echo "not allowed: $axiom" >&2
    exit 1
  fi
done
echo "$statements statements rest on nothing but: $(printf '%s ' $axioms)"
