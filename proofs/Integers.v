(** Matrices of integers whose products stay bounded: their scans are exact while every sum has room. *)

From Coq Require Import ZArith Reals List Lia.
From Flocq Require Import Core BinarySingleNaN.
From Transductor Require Import Floats Sums Scan Monomial.
Import ListNotations.

Section Bounded.

Context (prec emax : Z) {prec_positive : Prec_gt_0 prec} {prec_below_emax : Prec_lt_emax prec emax}.
Notation represents := (represents prec emax).
Context (D : nat) {letter : Type} (table : letter -> nat -> nat -> float prec emax) (initial : nat -> float prec emax).
Context (T : letter -> nat -> nat -> Z) (v : nat -> Z) (e : Z).
Hypothesis table_means : forall a i j, (i < D)%nat -> (j < D)%nat -> represents (table a i j) (IZR (T a i j)).
Hypothesis initial_means : forall i, (i < D)%nat -> represents (initial i) (IZR (v i) * bpow radix2 e).

Lemma summed_at_most : forall f c, (forall k, (k < D)%nat -> (f k <= c)%Z) -> (summed D f <= Z.of_nat D * c)%Z.
Proof.
  intros f c H. transitivity (summed D (fun _ => c)); [ now apply summed_le | ].
  unfold summed. apply Z.eq_le_incl. rewrite <- (seq_length D 0) at 2. generalize (seq 0 D) as l.
  induction l as [ | k l IH ]; [ reflexivity | ]. cbn [map]. unfold total in *. cbn [fold_right]. rewrite IH.
  cbn [length]. lia.
Qed.

(** No entry of a product of letters, of any length, is larger than [largest]; [units] is the size of the initial
    state in units of 2^e. *)
Theorem exact_state_by_bound : forall largest units : Z,
  (forall w i j, (i < D)%nat -> (j < D)%nat -> (Z.abs (product D T w i j) <= largest)%Z) ->
  (summed D (fun i => Z.abs (v i)) <= units)%Z ->
  (Z.of_nat D * largest * largest <= 2 ^ prec)%Z ->
  (Z.of_nat D * largest * largest * units <= 2 ^ prec)%Z ->
  (least_exponent prec emax <= e)%Z -> (e + prec < emax)%Z ->
  forall w h, computed_state prec emax D table initial w h ->
  forall i, (i < D)%nat -> represents (h i) (IZR (run D T v w i) * bpow radix2 e).
Proof.
  intros largest units Hlargest Hunits Hmatrices Hstates He Hrange.
  assert (Hpos := prec_positive). assert (Hmax := prec_below_emax). unfold Prec_gt_0, Prec_lt_emax in Hpos, Hmax.
  assert (Hroom : forall u ks, (least_exponent prec emax <= u)%Z -> (u + prec < emax)%Z ->
    (size ks <= 2 ^ prec)%Z -> fits prec emax u ks).
  { intros u ks Hu Hu' Hsize. apply room_fits. split; [ exact Hu | split; [ exact Hsize | ] ].
    apply Rle_lt_trans with (bpow radix2 (prec + u)); [ | apply bpow_lt; lia ].
    rewrite bpow_plus. apply Rmult_le_compat_r; [ apply bpow_ge_0 | ].
    rewrite <- IZR_Zpower by lia. now apply IZR_le. }
  apply exact_state; [ exact table_means | exact initial_means | | ].
  - intros w x i j Hi Hj. apply Hroom; [ unfold least_exponent; lia | lia | ]. rewrite size_is_summed.
    etransitivity; [ | exact Hmatrices ]. rewrite <- Z.mul_assoc. apply summed_at_most. intros k Hk.
    rewrite Z.abs_mul. apply Z.mul_le_mono_nonneg; try lia; now apply Hlargest.
  - intros w x i Hi. apply Hroom; [ exact He | exact Hrange | ]. rewrite size_is_summed.
    etransitivity; [ | exact Hstates ]. rewrite <- !Z.mul_assoc. apply summed_at_most. intros k Hk.
    rewrite Z.abs_mul. apply Z.mul_le_mono_nonneg; try lia; [ now apply Hlargest | ].
    rewrite run_is_product by exact Hk. unfold applied. etransitivity; [ apply abs_summed | ].
    transitivity (largest * summed D (fun j => Z.abs (v j)))%Z.
    + rewrite <- summed_scaled. apply summed_le. intros j Hj. rewrite Z.abs_mul. specialize (Hlargest w k j Hk Hj). nia.
    + assert (0 <= largest)%Z by (specialize (Hlargest w k k Hk Hk); lia). nia.
Qed.

End Bounded.
