(** What a certificate states: a model as the bit patterns of its checkpoint, a specification, and their agreement. *)

From Coq Require Import ZArith NArith Reals List.
From Flocq Require Import Core BinarySingleNaN.
From Transductor Require Import Floats Sums Scan Invariant Patterns.
Import ListNotations.

(** A row of a matrix: columns, ascending, with bit patterns.  Entries that are not listed are +0. *)
Definition row : Type := list (N * Z).
Notation "column |-> bits" := (column%N, bits%Z) (at level 70, only parsing).

(** A head whose scan multiplies the matrices of [table], and a linear map that reads its states.
    [table] has a matrix for each letter, given by its rows: entry (to, from).  A head that looks back shows the state
    before the last letter too, after the present one. *)
Record model : Type := Model {
  head_format : format;
  readout_format : format;
  lookback : bool;
  table : list (list row);
  initial : list Z;
  weight : list row;
  bias : list Z
}.

(** A Moore machine, whose negative outputs mean "any label", and a domain: a machine that puts out 1 on the words
    that can occur.  States are numbers; row q of [transitions] has the next state for every letter. *)
Record specification : Type := Specification {
  transitions : list (list N);
  outputs : list Z;
  start : N;
  domain_transitions : list (list N);
  domain_outputs : list Z;
  domain_start : N
}.

Definition entry (f : format) (r : row) (j : nat) : number f :=
  match find (fun p => N.eqb (fst p) (N.of_nat j)) r with
  | Some p => number_of f (snd p)
  | None => B754_zero false
  end.

Section Computation.

Context (m : model).

Definition dimension : nat := length (initial m).
Definition shown_dimension : nat := if lookback m then 2 * dimension else dimension.
Definition letters : nat := length (table m).
Definition classes : nat := length (bias m).

Definition table_entry (a i j : nat) : number (head_format m) := entry _ (nth i (nth a (table m) []) []) j.
Definition initial_entry (i : nat) : number (head_format m) := number_of _ (nth i (initial m) 0%Z).
Definition weight_entry (j k : nat) : number (readout_format m) := entry _ (nth j (weight m) []) k.
Definition bias_entry (j : nat) : number (readout_format m) := number_of _ (nth j (bias m) 0%Z).

(** What the readout reads: the state, followed by the one before where the head looks back. *)
Definition shown {A} (now before : nat -> A) (k : nat) : A :=
  if (k <? dimension)%nat then now k else before (k - dimension)%nat.

(** [computed_logits w logits]: some computation gives these logits after the word w.  The scan may be associated in
    any way, every sum may be taken in any order, with or without fused multiply-adds, the bias may be added anywhere. *)
Definition computed_logits (w : list nat) (logits : nat -> number (readout_format m)) : Prop :=
  exists now before,
  computed_state _ _ dimension table_entry initial_entry w now /\
  computed_state _ _ dimension table_entry initial_entry (removelast w) before /\
  forall j, (j < classes)%nat ->
    sums _ _ (Value (bias_entry j)
      :: inner _ _ shown_dimension (weight_entry j) (fun k => cast _ _ _ _ (shown now before k))) (logits j).

(** Several logits show the label of the largest one, which must be larger than every other.  A single logit is
    compared with zero: it shows 1 above and 0 below. *)
Definition shows (logits : nat -> number (readout_format m)) (label : nat) : Prop :=
  if (classes =? 1)%nat then
    (label = 1%nat /\ Bltb (B754_zero false) (logits 0%nat) = true) \/
    (label = 0%nat /\ Bltb (logits 0%nat) (B754_zero false) = true)
  else (label < classes)%nat /\
    forall j, (j < classes)%nat -> j <> label -> Bltb (logits j) (logits label) = true.

End Computation.

Section Words.

Context (s : specification).

(** Where a table has no entry, the next state is one that does not exist, which is outside the domain. *)
Definition next (rows : list (list N)) (q : N) (a : nat) : N :=
  nth a (nth (N.to_nat q) rows []) (N.of_nat (length rows)).
Definition output (outs : list Z) (q : N) : Z := nth (N.to_nat q) outs (-1)%Z.

Definition label_after (w : list nat) : Z := output (outputs s) (machine_after (next (transitions s)) (start s) w).
Definition inside (d : N) : bool := Z.eqb (output (domain_outputs s) d) 1.
Definition in_domain (w : list nat) : Prop :=
  inside (domain_after (next (domain_transitions s)) (domain_start s) w) = true.

End Words.

(** The model agrees with the specification: after every word of the domain that has at least one letter, however the
    logits are computed, they show the right label, unless any label will do. *)
Definition agrees (m : model) (s : specification) : Prop :=
  forall w : list nat, w <> [] -> Forall (fun a => (a < letters m)%nat) w -> in_domain s w ->
  forall logits, computed_logits m w logits ->
  (0 <= label_after s w)%Z -> shows m logits (Z.to_nat (label_after s w)).
