(** Numbers of an IEEE 754 binary format, and what one operation of the format does.

    [prec] and [emax] name the format as Flocq does: 24 and 128 are binary32, 53 and 1024 are binary64.
    Everything rounds to nearest, ties to even, with gradual underflow. *)

From Coq Require Import ZArith Reals Lra Lia.
From Flocq Require Import Core Relative BinarySingleNaN.
Open Scope R_scope.

Notation float := binary_float.

Section Format.

Context (prec emax : Z) {prec_positive : Prec_gt_0 prec} {prec_below_emax : Prec_lt_emax prec emax}.

(** The exponent of the smallest subnormal number. *)
Definition least_exponent : Z := (3 - emax - prec)%Z.

Definition add (x y : float prec emax) : float prec emax := Bplus mode_NE x y.
Definition mul (x y : float prec emax) : float prec emax := Bmult mode_NE x y.
Definition fma (x y z : float prec emax) : float prec emax := Bfma mode_NE x y z.

(** "The float x is finite and its value is r."  Both zeros represent 0. *)
Definition represents (x : float prec emax) (r : R) : Prop := is_finite x = true /\ B2R x = r.

(** The real numbers that the format can write, if its exponents were unbounded above. *)
Definition writable (r : R) : Prop := generic_format radix2 (SpecFloat.fexp prec emax) r.

Definition rounded (r : R) : R := round radix2 (SpecFloat.fexp prec emax) ZnearestE r.

(** Half the distance from 1 to the next number, and half the smallest subnormal number. *)
Definition unit_roundoff : R := bpow radix2 (- prec).
Definition underflow : R := bpow radix2 (least_exponent - 1).

(** Below this size, half of what the format reaches, nothing overflows. *)
Definition safe_size : R := bpow radix2 (emax - 1).

Lemma represented_is_writable : forall x r, represents x r -> writable r.
Proof. intros x r [_ <-]. apply generic_format_B2R. Qed.

Lemma represented_below_overflow : forall x r, represents x r -> Rabs r < bpow radix2 emax.
Proof. intros x r [_ <-]. apply abs_B2R_lt_emax. Qed.

Lemma represents_unique : forall x r s, represents x r -> represents x s -> r = s.
Proof. intros x r s [_ <-] [_ <-]. reflexivity. Qed.

Lemma writable_zero : writable 0.
Proof. apply generic_format_0. Qed.

Lemma writable_rounded : forall r, writable r -> rounded r = r.
Proof. intros r Hr. apply round_generic; [ typeclasses eauto | exact Hr ]. Qed.

(** An integer with at most [prec] bits, scaled by a power of two that is not too small, can be written. *)
Lemma writable_scaled : forall k e : Z,
  (Z.abs k <= 2 ^ prec)%Z -> (least_exponent <= e)%Z -> writable (IZR k * bpow radix2 e).
Proof.
  intros k e Hk He. unfold writable.
  change (generic_format radix2 (FLT_exp least_exponent prec) (IZR k * bpow radix2 e)).
  assert (positive := prec_positive). unfold Prec_gt_0 in positive.
  destruct (Z.eq_dec (Z.abs k) (2 ^ prec)) as [Hlargest | Hsmaller].
  - (* 2^prec itself needs one bit only *)
    assert (Hk' : IZR k * bpow radix2 e = (if (k <? 0)%Z then -1 else 1) * bpow radix2 (prec + e)).
    { rewrite bpow_plus, <- Rmult_assoc. f_equal. rewrite <- IZR_Zpower by lia. change (radix_val radix2) with 2%Z.
      destruct (Z.ltb_spec k 0); rewrite <- mult_IZR; f_equal; lia. }
    rewrite Hk'.
    assert (power : generic_format radix2 (FLT_exp least_exponent prec) (bpow radix2 (prec + e))).
    { apply generic_format_bpow. unfold FLT_exp. lia. }
    destruct (k <? 0)%Z.
    + replace (-1 * bpow radix2 (prec + e)) with (- bpow radix2 (prec + e)) by ring. now apply generic_format_opp.
    + now rewrite Rmult_1_l.
  - apply generic_format_FLT. exists (Float radix2 k e); simpl; [ reflexivity | | exact He ].
    change (radix_val radix2) with 2%Z. lia.
Qed.

Lemma unit_roundoff_positive : 0 < unit_roundoff.
Proof. apply bpow_gt_0. Qed.

Lemma underflow_positive : 0 < underflow.
Proof. apply bpow_gt_0. Qed.

(** One rounding moves a number by at most u times its size, plus half the smallest subnormal number. *)
Lemma rounding_error : forall r, Rabs (rounded r - r) <= unit_roundoff * Rabs r + underflow.
Proof.
  intros r. unfold rounded.
  destruct (error_N_FLT radix2 least_exponent prec prec_positive (fun x => negb (Z.even x)) r)
    as (eps & eta & Heps & Heta & _ & Hround).
  change (SpecFloat.fexp prec emax) with (FLT_exp least_exponent prec). rewrite Hround.
  replace (r * (1 + eps) + eta - r) with (eps * r + eta) by ring.
  apply Rle_trans with (1 := Rabs_triang _ _). rewrite Rabs_mult.
  assert (half : forall e, / 2 * bpow radix2 e = bpow radix2 (e - 1)).
  { intros e. unfold Zminus. rewrite bpow_plus. simpl (bpow radix2 (- (1))). change (Z.pow_pos 2 1) with 2%Z. ring. }
  rewrite half in Heps, Heta. replace (- prec + 1 - 1)%Z with (- prec)%Z in Heps by ring.
  apply Rplus_le_compat; [ apply Rmult_le_compat_r; [ apply Rabs_pos | exact Heps ] | exact Heta ].
Qed.

(** A number of safe size stays below the overflow threshold when it is rounded. *)
Lemma safe_rounding : forall r, Rabs r <= safe_size -> Rabs (rounded r) < bpow radix2 emax.
Proof.
  intros r Hr. apply Rle_lt_trans with safe_size.
  - unfold rounded. apply abs_round_le_generic; [ typeclasses eauto | typeclasses eauto | | exact Hr ].
    apply generic_format_bpow. unfold SpecFloat.fexp, SpecFloat.emin.
    assert (positive := prec_positive). assert (bounded := prec_below_emax).
    unfold Prec_gt_0, Prec_lt_emax in *. lia.
  - apply bpow_lt. lia.
Qed.

(** The three operations round the exact result, unless it overflows. *)
Lemma add_rounds : forall x y r s, represents x r -> represents y s ->
  Rabs (rounded (r + s)) < bpow radix2 emax -> represents (add x y) (rounded (r + s)).
Proof.
  intros x y r s [Fx <-] [Fy <-] Hsize.
  generalize (Bplus_correct prec emax _ _ mode_NE x y Fx Fy). simpl round_mode.
  rewrite Rlt_bool_true by exact Hsize. now intros (? & ? & _).
Qed.

Lemma mul_rounds : forall x y r s, represents x r -> represents y s ->
  Rabs (rounded (r * s)) < bpow radix2 emax -> represents (mul x y) (rounded (r * s)).
Proof.
  intros x y r s [Fx <-] [Fy <-] Hsize.
  generalize (Bmult_correct prec emax _ _ mode_NE x y). simpl round_mode.
  rewrite Rlt_bool_true by exact Hsize. intros (? & Hfinite & _). split; [ | assumption ].
  unfold mul. now rewrite Hfinite, Fx, Fy.
Qed.

Lemma fma_rounds : forall x y z r s t, represents x r -> represents y s -> represents z t ->
  Rabs (rounded (r * s + t)) < bpow radix2 emax -> represents (fma x y z) (rounded (r * s + t)).
Proof.
  intros x y z r s t [Fx <-] [Fy <-] [Fz <-] Hsize.
  generalize (Bfma_correct prec emax _ _ mode_NE x y z Fx Fy Fz). simpl round_mode. cbv zeta.
  rewrite Rlt_bool_true by exact Hsize. now intros (? & ? & _).
Qed.

(** Where the exact result can be written, nothing is rounded. *)
Lemma add_exact : forall x y r s, represents x r -> represents y s ->
  writable (r + s) -> Rabs (r + s) < bpow radix2 emax -> represents (add x y) (r + s).
Proof.
  intros x y r s Hx Hy Hw Hsize. rewrite <- (writable_rounded _ Hw) in Hsize |- *. now apply add_rounds.
Qed.

Lemma mul_exact : forall x y r s, represents x r -> represents y s ->
  writable (r * s) -> Rabs (r * s) < bpow radix2 emax -> represents (mul x y) (r * s).
Proof.
  intros x y r s Hx Hy Hw Hsize. rewrite <- (writable_rounded _ Hw) in Hsize |- *. now apply mul_rounds.
Qed.

Lemma fma_exact : forall x y z r s t, represents x r -> represents y s -> represents z t ->
  writable (r * s + t) -> Rabs (r * s + t) < bpow radix2 emax -> represents (fma x y z) (r * s + t).
Proof.
  intros x y z r s t Hx Hy Hz Hw Hsize. rewrite <- (writable_rounded _ Hw) in Hsize |- *. now apply fma_rounds.
Qed.

(** Comparing floats is comparing their values. *)
Lemma less_than : forall x y r s, represents x r -> represents y s -> r < s -> Bltb x y = true.
Proof.
  intros x y r s [Fx <-] [Fy <-] H. rewrite Bltb_correct by assumption. now apply Rlt_bool_true.
Qed.

End Format.

(** Casting a float of one format to another one: its value is rounded once.  Infinities and NaN stay what they are. *)
Section Cast.

Context (prec emax : Z).
Context (prec' emax' : Z) {positive' : Prec_gt_0 prec'} {below' : Prec_lt_emax prec' emax'}.

Definition cast (x : float prec emax) : float prec' emax' :=
  match x with
  | B754_zero s => B754_zero s
  | B754_infinity s => B754_infinity s
  | B754_nan => B754_nan
  | B754_finite s m e _ => binary_normalize prec' emax' positive' below' mode_NE (SpecFloat.cond_Zopp s (Zpos m)) e s
  end.

Lemma cast_rounds : forall x r, represents prec emax x r ->
  Rabs (rounded prec' emax' r) < bpow radix2 emax' -> represents prec' emax' (cast x) (rounded prec' emax' r).
Proof.
  intros [s | s | | s m e valid] r [Fx <-] Hsize; try discriminate; simpl cast.
  - simpl B2R. rewrite (writable_rounded prec' emax' _ (writable_zero prec' emax')). now split.
  - generalize (binary_normalize_correct prec' emax' _ _ mode_NE (SpecFloat.cond_Zopp s (Zpos m)) e s). cbv zeta.
    simpl round_mode. simpl B2R in Hsize |- *. rewrite Rlt_bool_true by exact Hsize. now intros (? & ? & _).
Qed.

End Cast.
