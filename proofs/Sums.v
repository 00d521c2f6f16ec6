(** Sums of products, computed in any order, and when they are exact.

    Hardware and libraries choose how they add: from the left, in blocks, by a tree, with fused multiply-adds, with
    zeros as padding.  [sums terms c] says that c is one of the floats that can come out. *)

From Coq Require Import ZArith Reals List Permutation Lra Lia.
From Flocq Require Import Core BinarySingleNaN.
From Transductor Require Import Floats.
Import ListNotations.
Open Scope R_scope.

Section Sums.

Context (prec emax : Z) {prec_positive : Prec_gt_0 prec} {prec_below_emax : Prec_lt_emax prec emax}.

Notation number := (float prec emax).
Notation represents := (represents prec emax).

(** What is added: a number as it is (a bias), or the product of two numbers. *)
Inductive term : Type :=
  | Value (x : number)
  | Product (x y : number).

Inductive sums : list term -> number -> Prop :=
  | sums_zero : forall z, represents z 0 -> sums [] z
  | sums_value : forall x, sums [Value x] x
  | sums_product : forall x y, sums [Product x y] (mul prec emax x y)
  | sums_add : forall l m a b, sums l a -> sums m b -> sums (l ++ m) (add prec emax a b)
  | sums_fma : forall x y l a, sums l a -> sums (Product x y :: l) (fma prec emax x y a)
  | sums_permuted : forall l m a, Permutation l m -> sums l a -> sums m a.

(** "The exact value of this term is k times 2^e." *)
Inductive means (e : Z) : term -> Z -> Prop :=
  | means_value : forall x k, represents x (IZR k * bpow radix2 e) -> means e (Value x) k
  | means_product : forall x y r s k, represents x r -> represents y s ->
      r * s = IZR k * bpow radix2 e -> means e (Product x y) k.

Definition total (ks : list Z) : Z := fold_right Z.add 0%Z ks.
Definition size (ks : list Z) : Z := total (map Z.abs ks).

Lemma total_app : forall ks js, total (ks ++ js) = (total ks + total js)%Z.
Proof. induction ks as [ | k ks IH]; intros js; simpl; [ reflexivity | rewrite IH; lia ]. Qed.

Lemma size_app : forall ks js, size (ks ++ js) = (size ks + size js)%Z.
Proof. intros. unfold size. now rewrite map_app, total_app. Qed.

Lemma total_permuted : forall ks js, Permutation ks js -> total ks = total js.
Proof. induction 1; simpl; lia. Qed.

Lemma size_permuted : forall ks js, Permutation ks js -> size ks = size js.
Proof. intros. apply total_permuted. now apply Permutation_map. Qed.

Lemma size_nonnegative : forall ks, (0 <= size ks)%Z.
Proof. unfold size. induction ks; simpl; lia. Qed.

Lemma total_within_size : forall ks, (Z.abs (total ks) <= size ks)%Z.
Proof. unfold size. induction ks; simpl; lia. Qed.

(** A sum has room if all its terms are integers in one unit 2^e, and their absolute values together need no more
    bits than the format has.  No partial sum, in whatever order, can then be rounded or overflow. *)
Definition has_room (e : Z) (ks : list Z) : Prop :=
  (least_exponent prec emax <= e)%Z /\ (size ks <= 2 ^ prec)%Z /\ IZR (size ks) * bpow radix2 e < bpow radix2 emax.

Lemma room_for_part : forall e ks js, (size ks <= size js)%Z -> has_room e js -> has_room e ks.
Proof.
  intros e ks js Hsize (He & Hbits & Hrange). split; [ exact He | split; [ lia | ] ].
  apply Rle_lt_trans with (2 := Hrange). apply Rmult_le_compat_r; [ apply bpow_ge_0 | now apply IZR_le ].
Qed.

Lemma room_for_total : forall e ks, has_room e ks ->
  writable prec emax (IZR (total ks) * bpow radix2 e) /\ Rabs (IZR (total ks) * bpow radix2 e) < bpow radix2 emax.
Proof.
  intros e ks (He & Hbits & Hrange). assert (Hwithin := total_within_size ks). split.
  - apply writable_scaled; [ assumption | lia | exact He ].
  - rewrite Rabs_mult, (Rabs_pos_eq (bpow radix2 e)) by apply bpow_ge_0.
    apply Rle_lt_trans with (2 := Hrange). apply Rmult_le_compat_r; [ apply bpow_ge_0 | ].
    rewrite <- abs_IZR. now apply IZR_le.
Qed.

(** The main fact: a sum with room is exact, whatever the order. *)
Theorem exact_sum : forall e terms c, sums terms c ->
  forall ks, Forall2 (means e) terms ks -> has_room e ks -> represents c (IZR (total ks) * bpow radix2 e).
Proof.
  intros e terms c Hsums. induction Hsums as [ z Hz | x | x y | l m a b _ IHl _ IHm | x y l a _ IH | l m a Hperm _ IH ];
    intros ks Hks Hroom.
  - inversion Hks; subst. simpl. now rewrite Rmult_0_l.
  - inversion Hks as [ | ? k ? js Hk Hjs ]; subst. inversion Hjs; subst. inversion Hk; subst.
    unfold total; simpl. now rewrite Z.add_0_r.
  - destruct (room_for_total _ _ Hroom) as [Hw Hr].
    inversion Hks as [ | ? k ? js Hk Hjs ]; subst. inversion Hjs; subst.
    inversion Hk as [ | ? ? r s ? Hx Hy Hrs ]; subst.
    unfold total in *; simpl in *. rewrite Z.add_0_r, <- Hrs in *. now apply mul_exact.
  - destruct (room_for_total _ _ Hroom) as [Hw Hr].
    apply Forall2_app_inv_l in Hks as (kl & km & Hl & Hm & ->).
    assert (Hpl := size_nonnegative kl). assert (Hpm := size_nonnegative km).
    assert (Ha : represents a (IZR (total kl) * bpow radix2 e)).
    { apply IHl; [ exact Hl | ]. apply room_for_part with (2 := Hroom). rewrite size_app. lia. }
    assert (Hb : represents b (IZR (total km) * bpow radix2 e)).
    { apply IHm; [ exact Hm | ]. apply room_for_part with (2 := Hroom). rewrite size_app. lia. }
    rewrite total_app, plus_IZR, Rmult_plus_distr_r in *. now apply add_exact.
  - destruct (room_for_total _ _ Hroom) as [Hw Hr].
    inversion Hks as [ | ? k ? js Hk Hjs ]; subst. inversion Hk as [ | ? ? r s ? Hx Hy Hrs ]; subst.
    assert (Ha : represents a (IZR (total js) * bpow radix2 e)).
    { apply IH; [ exact Hjs | ]. apply room_for_part with (2 := Hroom). unfold size; simpl. lia. }
    change (total (k :: js)) with (k + total js)%Z in *.
    rewrite plus_IZR, Rmult_plus_distr_r, <- Hrs in *. now apply fma_exact.
  - apply Permutation_sym in Hperm. destruct (Permutation_Forall2 Hperm Hks) as (js & Hjs & Hl).
    rewrite (total_permuted _ _ Hjs). apply IH; [ exact Hl | ].
    apply room_for_part with (2 := Hroom). rewrite (size_permuted _ _ Hjs). lia.
Qed.

(** The unit in which a sum has room may be another one than that in which its terms are given. *)
Definition fits (e : Z) (ks : list Z) : Prop :=
  exists e' js, has_room e' js /\ Forall2 (fun k j => IZR k * bpow radix2 e = IZR j * bpow radix2 e') ks js.

Lemma room_fits : forall e ks, has_room e ks -> fits e ks.
Proof. intros e ks Hroom. exists e, ks. split; [ exact Hroom | ]. clear Hroom. induction ks; now constructor. Qed.

Theorem exact_sum_that_fits : forall e terms c ks,
  sums terms c -> Forall2 (means e) terms ks -> fits e ks -> represents c (IZR (total ks) * bpow radix2 e).
Proof.
  intros e terms c ks Hsums Hks (e' & js & Hroom & Hunits).
  assert (Hjs : Forall2 (means e') terms js /\ IZR (total ks) * bpow radix2 e = IZR (total js) * bpow radix2 e').
  { clear Hsums Hroom. revert js Hunits. induction Hks as [ | t k terms ks Ht Hks IH ]; intros js Hunits.
    - inversion Hunits; subst. split; [ constructor | simpl; now rewrite !Rmult_0_l ].
    - inversion Hunits as [ | ? j ? js' Hj Hjs ]; subst. destruct (IH js' Hjs) as [IH1 IH2]. split.
      + constructor; [ | exact IH1 ].
        inversion Ht; subst; econstructor; try eassumption; now rewrite <- Hj.
      + change (total (k :: ks)) with (k + total ks)%Z. change (total (j :: js')) with (j + total js')%Z.
        rewrite !plus_IZR, !Rmult_plus_distr_r. now rewrite Hj, IH2. }
  destruct Hjs as [Hjs ->]. now apply exact_sum with (1 := Hsums).
Qed.

(** A number of the format has room in the unit of its own last bit, however far that is from 1. *)
Lemma room_for_one_number : forall x r, represents x r ->
  exists m e, r = IZR m * bpow radix2 e /\ forall ks, size ks = Z.abs m -> has_room e ks.
Proof.
  intros x r [Fx <-]. assert (Hrange := abs_B2R_lt_emax prec emax x).
  assert (Hbounds := prec_below_emax). assert (Hpos := prec_positive). unfold Prec_lt_emax, Prec_gt_0 in Hbounds, Hpos.
  destruct x as [ s | s | | s m e valid]; try discriminate.
  - exists 0%Z, (least_exponent prec emax). split; [ simpl; now rewrite Rmult_0_l | ].
    intros ks Hks. split; [ lia | ]. rewrite Hks. split; [ apply Z.pow_nonneg; lia | ].
    rewrite Rmult_0_l. apply bpow_gt_0.
  - exists (SpecFloat.cond_Zopp s (Zpos m)), e. split; [ reflexivity | ].
    intros ks Hks.
    assert (Habs : Z.abs (SpecFloat.cond_Zopp s (Zpos m)) = Zpos m) by (now destruct s).
    rewrite Habs in Hks. unfold has_room. rewrite Hks.
    destruct (andb_prop _ _ valid) as [Hcanonical _].
    apply canonical_canonical_mantissa with (sx := false) in Hcanonical.
    unfold canonical in Hcanonical. simpl in Hcanonical.
    assert (Hexp : e = SpecFloat.fexp prec emax (Digits.Zdigits radix2 (Zpos m) + e)).
    { rewrite Hcanonical at 1. unfold cexp. f_equal. apply mag_F2R_Zdigits. discriminate. }
    unfold SpecFloat.fexp, SpecFloat.emin in Hexp.
    split; [ unfold least_exponent; lia | split ].
    + assert (Hbits : (Z.abs (Zpos m) < radix2 ^ prec)%Z) by (apply Digits.Zpower_gt_Zdigits; lia).
      change (radix_val radix2) with 2%Z in Hbits. lia.
    + simpl in Hrange. revert Hrange. unfold F2R; simpl. rewrite Rabs_mult, <- abs_IZR, Habs.
      now rewrite (Rabs_pos_eq (bpow radix2 e)) by apply bpow_ge_0.
Qed.

(** So does a sum all of whose terms are zero, except one that is a number of the format. *)
Lemma one_number_fits : forall e ks k x,
  size ks = Z.abs k -> (forall j, In j ks -> j = 0 \/ Z.abs j = Z.abs k)%Z ->
  represents x (IZR k * bpow radix2 e) -> fits e ks.
Proof.
  intros e ks k x Hsize Hterms Hx. destruct (room_for_one_number _ _ Hx) as (m & e' & Hm & Hroom).
  (* in the unit 2^e', a term k becomes m and a term -k becomes -m *)
  pose (scaled := fun j : Z => if (j =? 0)%Z then 0%Z else (Z.sgn j * Z.sgn k * m)%Z).
  exists e', (map scaled ks).
  destruct (Z.eq_dec k 0) as [-> | Hk].
  - assert (Hzero : forall j, In j ks -> j = 0%Z) by (intros j Hj; specialize (Hterms j Hj); lia).
    clear Hterms. assert (Hmap : map scaled ks = ks).
    { rewrite <- map_id. apply map_ext_in. intros j Hj. rewrite (Hzero j Hj). reflexivity. }
    rewrite Hmap. split.
    + apply Hroom. rewrite Hsize. rewrite Rmult_0_l in Hm. symmetry in Hm. apply Rmult_integral in Hm.
      destruct Hm as [Hm | Hm]; [ now apply eq_IZR in Hm; subst | exfalso; revert Hm; apply Rgt_not_eq, bpow_gt_0 ].
    + clear Hroom Hmap Hsize. induction ks as [ | j ks IH ]; constructor.
      * rewrite (Hzero j); [ now rewrite !Rmult_0_l | now left ].
      * apply IH. intros i Hi. apply Hzero. now right.
  - split.
    + apply Hroom. enough (Hscale : (size (map scaled ks) * Z.abs k = size ks * Z.abs m)%Z) by (rewrite Hsize in
        Hscale; nia).
      clear Hsize. unfold size. induction ks as [ | j ks IH ]; [ reflexivity | ].
      simpl. rewrite !Z.mul_add_distr_r, IH by (intros i Hi; apply Hterms; now right). f_equal.
      unfold scaled. destruct (Z.eqb_spec j 0) as [-> | Hj]; [ reflexivity | ].
      destruct (Hterms j (or_introl eq_refl)) as [ | Habs ]; [ contradiction | ]. rewrite !Z.abs_mul, Habs.
      replace (Z.abs (Z.sgn j)) with 1%Z by lia. replace (Z.abs (Z.sgn k)) with 1%Z by lia. ring.
    + clear Hroom Hsize. induction ks as [ | j ks IH ]; constructor; [ | apply IH; intros i Hi; apply Hterms;
        now right ].
      unfold scaled. destruct (Z.eqb_spec j 0) as [-> | Hj]; [ now rewrite !Rmult_0_l | ].
      destruct (Hterms j (or_introl eq_refl)) as [ | Habs ]; [ contradiction | ].
      rewrite mult_IZR, Rmult_assoc, <- Hm, <- Rmult_assoc, <- mult_IZR. do 2 f_equal.
      destruct k, j; simpl in *; lia.
Qed.

End Sums.

Arguments Value {prec emax}.
Arguments Product {prec emax}.
