(** Bit patterns, as checkpoints store them, and their exact values.

    The meaning of a pattern is Flocq's ([binary_float_of_bits], the interchange encoding of IEEE 754). *)

From Coq Require Import ZArith Reals Lia Bool.
From Flocq Require Import Core BinarySingleNaN Binary Bits.
From Transductor Require Import Floats.

(** A format: 23 and 8 bits for fraction and exponent are binary32, 52 and 11 are binary64. *)
Record format : Type := Format {
  fraction_bits : Z;
  exponent_bits : Z;
  fraction_positive : (0 < fraction_bits)%Z;
  exponent_positive : (0 < exponent_bits)%Z;
  fraction_short : (fraction_bits + 1 < 2 ^ (exponent_bits - 1))%Z
}.

Definition binary32 : format := Format 23 8 eq_refl eq_refl eq_refl.
Definition binary64 : format := Format 52 11 eq_refl eq_refl eq_refl.

Definition precision (f : format) : Z := (fraction_bits f + 1)%Z.
Definition largest_exponent (f : format) : Z := (2 ^ (exponent_bits f - 1))%Z.

#[export] Instance precision_positive (f : format) : Prec_gt_0 (precision f).
Proof. unfold Prec_gt_0, precision. assert (H := fraction_positive f). lia. Qed.

#[export] Instance precision_short (f : format) : Prec_lt_emax (precision f) (largest_exponent f).
Proof. exact (fraction_short f). Qed.

Notation number f := (float (precision f) (largest_exponent f)).

(** The number that a pattern encodes. *)
Definition number_of (f : format) (bits : Z) : number f :=
  B2BSN _ _ (binary_float_of_bits (fraction_bits f) (exponent_bits f)
    (fraction_positive f) (exponent_positive f) (fraction_short f) bits).

(** Its value in units of 2^unit, and whether it is finite and a multiple of the unit. *)
Definition integer_of (f : format) (unit bits : Z) : Z :=
  match binary_float_of_bits_aux (fraction_bits f) (exponent_bits f) bits with
  | F754_finite s m e => cond_Zopp s (if (unit <=? e)%Z then Zpos m * 2 ^ (e - unit) else Zpos m / 2 ^ (unit - e))
  | _ => 0
  end.

Definition is_multiple (f : format) (unit bits : Z) : bool :=
  match binary_float_of_bits_aux (fraction_bits f) (exponent_bits f) bits with
  | F754_zero _ => true
  | F754_finite s m e => (unit <=? e)%Z || (Zpos m mod 2 ^ (unit - e) =? 0)%Z
  | _ => false
  end.

Theorem integer_of_correct : forall f unit bits, is_multiple f unit bits = true ->
  represents _ _ (number_of f bits) (IZR (integer_of f unit bits) * bpow radix2 unit).
Proof.
  intros f unit bits H. unfold represents, number_of, binary_float_of_bits.
  rewrite is_finite_B2BSN, B2R_B2BSN, is_finite_FF2B, B2R_FF2B. unfold is_multiple, integer_of in *.
  destruct (binary_float_of_bits_aux (fraction_bits f) (exponent_bits f) bits) as [ s | s | s pl | s m e ];
    try discriminate.
  - split; [ reflexivity | simpl; ring ].
  - split; [ reflexivity | ]. cbn [FF2R F2R]. unfold F2R. cbn [Fnum Fexp].
    assert (Hpower : forall k, (0 <= k)%Z -> IZR (2 ^ k) = bpow radix2 k).
    { intros k Hk. rewrite <- IZR_Zpower by exact Hk. reflexivity. }
    assert (Hsign : forall z, IZR (cond_Zopp s z) = ((if s then -1 else 1) * IZR z)%R).
    { intros z. destruct s; simpl; [ rewrite opp_IZR | ]; ring. }
    rewrite !Hsign, !Rmult_assoc. f_equal.
    destruct (Z.leb_spec unit e) as [Hle | Hlt]; cbn [orb] in H.
    + rewrite mult_IZR, Hpower by lia. rewrite Rmult_assoc, <- bpow_plus. do 2 f_equal. lia.
    + apply Z.eqb_eq in H.
      assert (Hnonzero : (2 ^ (unit - e) <> 0)%Z) by (apply Z.pow_nonzero; lia).
      rewrite (Z.div_mod (Zpos m) (2 ^ (unit - e)) Hnonzero) at 1. rewrite H, Z.add_0_r, mult_IZR, Hpower by lia.
      rewrite (Rmult_comm (bpow radix2 _)), Rmult_assoc, <- bpow_plus. do 2 f_equal. lia.
Qed.
