(** The statement is about something: for every word there is a computation of the logits, for instance the plain one,
    letter by letter, adding from the right. *)

From Coq Require Import ZArith Reals List.
From Flocq Require Import Core BinarySingleNaN.
From Transductor Require Import Floats Sums Scan Patterns Certificate.
Import ListNotations.

Section Plain.

Context (prec emax : Z) {prec_positive : Prec_gt_0 prec} {prec_below_emax : Prec_lt_emax prec emax}.

Definition plain_sum (terms : list (term prec emax)) : float prec emax :=
  fold_right (fun t s => match t with Value x => add prec emax x s | Product x y => fma prec emax x y s end)
    (B754_zero false) terms.

Lemma plain_sums : forall terms, sums prec emax terms (plain_sum terms).
Proof.
  induction terms as [ | [ x | x y ] terms IH ]; simpl.
  - constructor. now split.
  - apply (sums_add prec emax [Value x] terms); [ constructor | exact IH ].
  - now apply sums_fma.
Qed.

End Plain.

Theorem some_computation : forall m w, exists logits, computed_logits m w logits.
Proof.
  intros m w.
  assert (Hstate : forall x, exists h, computed_state _ _ (dimension m) (table_entry m) (initial_entry m) x h).
  { induction x as [ | a x (h & Hh) ] using rev_ind.
    - exists (initial_entry m). now constructor.
    - exists (fun i => plain_sum _ _ (inner _ _ (dimension m) (table_entry m a i) h)).
      apply computed_step with (h := h) (M := table_entry m a); [ exact Hh | now constructor | ].
      intros i _. apply plain_sums. }
  destruct (Hstate w) as (now & Hnow). destruct (Hstate (removelast w)) as (before & Hbefore).
  exists (fun j => plain_sum _ _ (Value (bias_entry m j)
    :: inner _ _ (shown_dimension m) (weight_entry m j) (fun k => cast _ _ _ _ (shown m now before k)))).
  exists now, before. split; [ exact Hnow | split; [ exact Hbefore | ] ]. intros j _. apply plain_sums.
Qed.
