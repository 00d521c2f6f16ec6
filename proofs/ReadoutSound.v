(** If the checker accepts the label of a node, then every computation of the logits shows it. *)

From Coq Require Import ZArith NArith Reals List Lia Lra Bool.
From Flocq Require Import Core BinarySingleNaN.
From Transductor Require Import Floats Sums Scan Monomial Readout Patterns Certificate Lookup Checker ScanSound.
Import ListNotations.
Open Scope R_scope.

Lemma at_least_correct : forall k s, (0 <= k)%Z -> IZR k * bpow radix2 s <= IZR (at_least k s).
Proof.
  intros k s Hk. unfold at_least. destruct (Z.leb_spec 0 s) as [Hs | Hs].
  - rewrite mult_IZR. rewrite <- IZR_Zpower by exact Hs. apply Rle_refl.
  - assert (Hpos : (0 < 2 ^ (- s))%Z) by (apply Z.pow_pos_nonneg; lia).
    assert (Hdiv : (k < 2 ^ (- s) * (k / 2 ^ (- s) + 1))%Z).
    { assert (H := Z.div_mod k (2 ^ (- s))). assert (H' := Z.mod_pos_bound k _ Hpos). lia. }
    apply IZR_lt in Hdiv. rewrite mult_IZR in Hdiv.
    assert (Hpower : IZR (2 ^ (- s)) * bpow radix2 s = 1).
    { change 2%Z with (radix_val radix2). rewrite IZR_Zpower by lia. rewrite <- bpow_plus.
      now replace (- s + s)%Z with 0%Z by ring. }
    apply Rlt_le. apply Rmult_lt_compat_r with (r := bpow radix2 s) in Hdiv; [ | apply bpow_gt_0 ].
    replace (IZR (2 ^ (- s)) * IZR (k / 2 ^ (- s) + 1) * bpow radix2 s)
      with (IZR (2 ^ (- s)) * bpow radix2 s * IZR (k / 2 ^ (- s) + 1)) in Hdiv by ring.
    now rewrite Hpower, Rmult_1_l in Hdiv.
Qed.

(** (1 + u)^n is at most 1 / (1 - n u). *)
Lemma growth_bounded : forall u n, 0 <= u -> (1 + u) ^ n * (1 - INR n * u) <= 1.
Proof.
  intros u n Hu. induction n as [ | n IH ]; [ simpl; lra | ].
  rewrite S_INR. assert (Hpos : 0 <= (1 + u) ^ n) by (apply pow_le; lra).
  assert (Hn : 0 <= INR n) by apply pos_INR.
  apply Rle_trans with (2 := IH). rewrite <- tech_pow_Rmult.
  assert (0 <= (1 + u) ^ n * ((INR n + 1) * (u * u))).
  { apply Rmult_le_pos; [ exact Hpos | apply Rmult_le_pos; [ lra | apply Rmult_le_pos; lra ] ]. }
  lra.
Qed.

Section Node.

Context (f g : format) (D : nat) (es ew : Z) (st : list Z) (h : nat -> number f).
Hypothesis state_means : forall k, (k < D)%nat -> represents _ _ (h k) (IZR (nth k st 0%Z) * bpow radix2 es).
Hypothesis state_in_range :
  forallb (fun k => Z.abs k <=? 2 ^ (largest_exponent g - 1 - es))%Z st = true.
Hypothesis state_unit_small : (es <= largest_exponent g - 1)%Z.
Hypothesis dimension_small : (Z.of_nat D + 2 < 2 ^ precision g)%Z.

Notation p := (precision g).
Notation emax := (largest_exponent g).
Notation q := (2 ^ precision g - (Z.of_nat D + 2))%Z.
Notation t := (es + ew)%Z.

(** The terms of a logit as real numbers. *)
Definition intentions (r : integer_row) (b : Z) : list (R * R) :=
  (IZR b * bpow radix2 t, 0) ::
  map (fun k => (IZR (integer_at r (N.of_nat k)) * bpow radix2 ew * (IZR (nth k st 0%Z) * bpow radix2 es),
    Rabs (IZR (integer_at r (N.of_nat k)) * bpow radix2 ew))) (seq 0 D).

Lemma terms_intended : forall (wr : row) (b : Z), well_formed g ew D wr = true -> is_multiple g t b = true ->
  Forall2 (intended p emax)
    (Value (number_of g b) :: inner p emax D (entry g wr) (fun k => cast _ _ _ _ (h k)))
    (intentions (integers g ew wr) (integer_of g t b)).
Proof.
  intros wr b Hw Hb. constructor; [ constructor; now apply integer_of_correct | ]. unfold inner.
  assert (Hbelow : forall k, In k (seq 0 D) -> (k < D)%nat) by (intros k Hk; apply in_seq in Hk; lia).
  revert Hbelow. generalize (seq 0 D) as l. induction l as [ | k l IH ]; intros Hbelow; simpl; constructor.
  - assert (Hk := state_means k (Hbelow k (or_introl eq_refl))).
    destruct (cast_is_near _ _ p emax _ _ _ _ Hk) as (c & Hc & Hnear).
    + rewrite Rabs_mult, (Rabs_pos_eq (bpow _ _)) by apply bpow_ge_0. unfold safe_size.
      replace (emax - 1)%Z with ((emax - 1 - es) + es)%Z by ring. rewrite bpow_plus.
      apply Rmult_le_compat_r; [ apply bpow_ge_0 | ]. rewrite <- abs_IZR, <- IZR_Zpower by lia. apply IZR_le, Z.leb_le.
      apply (forallb_nth _ (fun k => Z.abs k <=? 2 ^ (emax - 1 - es))%Z); [ exact state_in_range | ].
      apply Z.leb_le. simpl. apply Z.pow_nonneg. lia.
    + apply (intended_product _ _ _ _ _ c); [ | exact Hc | exact Hnear ]. now apply entry_means with D.
  - apply IH. intros j Hj. apply Hbelow. now right.
Qed.

Context (r : integer_row) (b : Z).
Hypothesis ascends : ascending 0 (N.of_nat D) r = true.

Lemma intentions_length : length (intentions r b) = S D.
Proof. simpl. now rewrite map_length, seq_length. Qed.

Lemma intentions_exact : exact_value (intentions r b) = IZR (b + dot r (tree_of st)) * bpow radix2 t.
Proof.
  unfold dot. rewrite (row_sum_is_summed _ D _ 0%N); [ | intros; ring | exact ascends ].
  simpl exact_value. rewrite plus_IZR, Rmult_plus_distr_r. f_equal. unfold summed.
  generalize (seq 0 D) as l. induction l as [ | k l IH ]; simpl; [ ring | ].
  rewrite IH, plus_IZR, mult_IZR, component_tree_of, Nnat.Nat2N.id, bpow_plus. ring.
Qed.

Lemma intentions_absolute : absolute_value (intentions r b) = IZR (Z.abs b + absolute_dot r (tree_of st)) * bpow
  radix2 t.
Proof.
  unfold absolute_dot. rewrite (row_sum_is_summed _ D _ 0%N); [ | intros; reflexivity | exact ascends ].
  assert (Hscale : forall k e, Rabs (IZR k * bpow radix2 e) = IZR (Z.abs k) * bpow radix2 e).
  { intros k e. rewrite Rabs_mult, <- abs_IZR, Rabs_pos_eq; [ reflexivity | apply bpow_ge_0 ]. }
  simpl absolute_value. rewrite plus_IZR, Rmult_plus_distr_r, Hscale. f_equal. unfold summed.
  generalize (seq 0 D) as l. induction l as [ | k l IH ]; simpl; [ ring | ].
  rewrite IH, plus_IZR, component_tree_of, Nnat.Nat2N.id, Z.abs_mul, mult_IZR, Rabs_mult, !Hscale, bpow_plus. ring.
Qed.

Lemma intentions_weights : weights (intentions r b) = IZR (row_size r) * bpow radix2 ew.
Proof.
  unfold row_size. rewrite (row_sum_is_summed _ D _ 0%N); [ | intros; reflexivity | exact ascends ].
  simpl weights. rewrite Rabs_R0, Rplus_0_l. unfold summed.
  generalize (seq 0 D) as l. induction l as [ | k l IH ]; simpl; [ ring | ].
  rewrite IH, plus_IZR, Rabs_Rabsolu, Rabs_mult, <- abs_IZR, (Rabs_pos_eq (bpow _ _)) by apply bpow_ge_0. ring.
Qed.

Notation lost := (underflow_units g D es ew (row_size r)).
Notation absolute := (Z.abs b + absolute_dot r (tree_of st))%Z.
Notation bound := (error_bound p emax (length (intentions r b)) (absolute_value (intentions r b)) (weights (intentions
  r b))).

Lemma sizes_nonnegative : (0 <= absolute)%Z /\ (0 <= row_size r)%Z.
Proof.
  assert (H : forall gg, (forall c k, 0 <= gg c k)%Z -> (0 <= row_sum gg r)%Z).
  { intros gg Hgg. unfold row_sum. clear ascends.
    induction r as [ | [c k] rest IH ]; simpl; [ lia | specialize (Hgg c k); lia ]. }
  unfold absolute_dot, row_size. split; [ | apply H; intros; lia ].
  assert (H' := H (fun c k => Z.abs (k * component (tree_of st) c))). cbv beta in H'.
  specialize (H' ltac:(intros; lia)). lia.
Qed.

(** The checker's error, an integer, is above the real one. *)
Lemma bound_in_units : bound * IZR q <= IZR ((Z.of_nat D + 2) * absolute + lost) * bpow radix2 t.
Proof.
  destruct sizes_nonnegative as [HA HX]. rewrite intentions_length, intentions_absolute, intentions_weights.
  unfold error_bound. set (G := growth p (S D)).
  assert (HG : G * IZR q <= IZR (2 ^ p)).
  { assert (H := growth_bounded (unit_roundoff p) (S (S D)) (Rlt_le _ _ (unit_roundoff_positive p))).
    fold (growth p (S D)) in H. fold G in H.
    assert (Hu : unit_roundoff p * IZR (2 ^ p) = 1).
    { unfold unit_roundoff. change 2%Z with (radix_val radix2).
      rewrite IZR_Zpower by (assert (Hp := precision_positive g); unfold Prec_gt_0 in Hp; lia).
      rewrite <- bpow_plus. now replace (- p + p)%Z with 0%Z by ring. }
    assert (Hq : IZR q = IZR (2 ^ p) * (1 - INR (S (S D)) * unit_roundoff p)).
    { rewrite minus_IZR, Rmult_minus_distr_l, Rmult_1_r. f_equal.
      replace (IZR (2 ^ p) * (INR (S (S D)) * unit_roundoff p)) with (INR (S (S D)) * (unit_roundoff p * IZR (2 ^ p)))
        by ring.
      rewrite Hu, Rmult_1_r, INR_IZR_INZ. f_equal. lia. }
    rewrite Hq. replace (G * (IZR (2 ^ p) * (1 - INR (S (S D)) * unit_roundoff p)))
      with (IZR (2 ^ p) * (G * (1 - INR (S (S D)) * unit_roundoff p))) by ring.
    rewrite <- (Rmult_1_r (IZR (2 ^ p))) at 2.
    apply Rmult_le_compat_l; [ apply IZR_le; apply Z.pow_nonneg; lia | exact H ]. }
  assert (HG1 : (G - 1) * IZR q <= IZR (Z.of_nat D + 2)).
  { rewrite Rmult_minus_distr_r, Rmult_1_l. rewrite minus_IZR in *. lra. }
  set (A := absolute) in *. set (X := row_size r) in *.
  assert (Hlost : underflow p emax * (2 * INR (S D) - 1 + IZR X * bpow radix2 ew) * IZR (2 ^ p)
    <= IZR lost * bpow radix2 t).
  { unfold underflow_units. fold X. set (least := (least_exponent p emax - 1 + p)%Z).
    rewrite plus_IZR, Rmult_plus_distr_r.
    assert (Hpower : underflow p emax * IZR (2 ^ p) = bpow radix2 least).
    { unfold underflow. change 2%Z with (radix_val radix2).
      rewrite IZR_Zpower by (assert (Hp := precision_positive g); unfold Prec_gt_0 in Hp; lia).
      rewrite <- bpow_plus. reflexivity. }
    replace (underflow p emax * (2 * INR (S D) - 1 + IZR X * bpow radix2 ew) * IZR (2 ^ p))
      with (underflow p emax * IZR (2 ^ p) * (2 * INR (S D) - 1) + IZR X * (underflow p emax * IZR (2 ^ p) * bpow
        radix2 ew)) by ring.
    rewrite Hpower, <- bpow_plus. apply Rplus_le_compat.
    - replace (2 * INR (S D) - 1) with (IZR (2 * Z.of_nat D + 1)).
      + replace least with ((least - t) + t)%Z at 1 by ring. rewrite bpow_plus.
        assert (H := at_least_correct (2 * Z.of_nat D + 1) (least - t) ltac:(lia)).
        apply Rmult_le_compat_r with (r := bpow radix2 t) in H; [ | apply bpow_ge_0 ]. lra.
      + rewrite S_INR, INR_IZR_INZ, plus_IZR, mult_IZR. lra.
    - replace (least + ew)%Z with ((least - es) + t)%Z by ring. rewrite bpow_plus.
      assert (H := at_least_correct X (least - es) HX).
      apply Rmult_le_compat_r with (r := bpow radix2 t) in H; [ | apply bpow_ge_0 ]. lra. }
  rewrite plus_IZR, mult_IZR.
  apply Rle_trans with ((G - 1) * IZR q * (IZR A * bpow radix2 t) +
    underflow p emax * (2 * INR (S D) - 1 + IZR X * bpow radix2 ew) * (G * IZR q)); [ right; ring | ].
  rewrite (Rmult_plus_distr_r _ _ (bpow radix2 t)).
  apply Rplus_le_compat.
  - rewrite (Rmult_assoc (IZR (Z.of_nat D + 2))). apply Rmult_le_compat_r; [ | exact HG1 ].
    apply Rmult_le_pos; [ now apply IZR_le | apply bpow_ge_0 ].
  - apply Rle_trans with (2 := Hlost). apply Rmult_le_compat_l; [ | exact HG ].
    apply Rmult_le_pos; [ apply Rlt_le, underflow_positive | ].
    assert (0 <= IZR X * bpow radix2 ew) by (apply Rmult_le_pos; [ now apply IZR_le | apply bpow_ge_0 ]).
    rewrite S_INR. assert (Hpos := pos_INR D). lra.
Qed.

Lemma range_accepted : (t <= emax - 1)%Z ->
  (absolute * 2 ^ p + lost <= q * 2 ^ (emax - 1 - t))%Z -> in_range p emax (intentions r b).
Proof.
  intros Ht H. unfold in_range. assert (Hb := bound_in_units). set (E := bound) in *.
  rewrite intentions_absolute. assert (Hq : 0 < IZR q) by (apply IZR_lt; lia).
  set (A := absolute) in *.
  apply Rmult_le_reg_r with (1 := Hq). rewrite Rmult_plus_distr_r.
  apply Rle_trans with (IZR (A * 2 ^ p + lost) * bpow radix2 t).
  - replace (A * 2 ^ p + lost)%Z with (A * q + ((Z.of_nat D + 2) * A + lost))%Z by ring.
    rewrite (plus_IZR (A * q)), (mult_IZR A q), Rmult_plus_distr_r. lra.
  - apply Rle_trans with (IZR (q * 2 ^ (emax - 1 - t)) * bpow radix2 t).
    + apply Rmult_le_compat_r; [ apply bpow_ge_0 | now apply IZR_le ].
    + rewrite mult_IZR. change (2 ^ (emax - 1 - t))%Z with (radix2 ^ (emax - 1 - t))%Z. rewrite IZR_Zpower by lia.
      rewrite Rmult_assoc, <- bpow_plus. unfold safe_size. replace (emax - 1 - t + t)%Z with (emax - 1)%Z by ring. lra.
Qed.

End Node.

(** A gap in units decides between two computed logits. *)
Lemma decision_accepted : forall f g D es ew st (h : nat -> number f) wr b wr' b' right wrong,
  (forall k, (k < D)%nat -> represents _ _ (h k) (IZR (nth k st 0%Z) * bpow radix2 es)) ->
  forallb (fun k => Z.abs k <=? 2 ^ (largest_exponent g - 1 - es))%Z st = true ->
  (es <= largest_exponent g - 1)%Z -> (es + ew <= largest_exponent g - 1)%Z ->
  (Z.of_nat D + 2 < 2 ^ precision g)%Z ->
  well_formed g ew D wr = true -> is_multiple g (es + ew) b = true ->
  well_formed g ew D wr' = true -> is_multiple g (es + ew) b' = true ->
  let class := fun wr b => (integers g ew wr, integer_of g (es + ew) b,
    underflow_units g D es ew (row_size (integers g ew wr))) in
  in_range_units g D (es + ew) (logit D (tree_of st) (class wr b)) (snd (class wr b)) = true ->
  in_range_units g D (es + ew) (logit D (tree_of st) (class wr' b')) (snd (class wr' b')) = true ->
  decides (2 ^ precision g - (Z.of_nat D + 2)) (logit D (tree_of st) (class wr b))
    (logit D (tree_of st) (class wr' b')) = true ->
  sums _ _ (Value (number_of g b) :: inner _ _ D (entry g wr) (fun k => cast _ _ _ _ (h k))) right ->
  sums _ _ (Value (number_of g b') :: inner _ _ D (entry g wr') (fun k => cast _ _ _ _ (h k))) wrong ->
  Bltb wrong right = true.
Proof.
  intros f g D es ew st h wr b wr' b' right wrong Hstate Hrange Hes Ht HD Hw Hb Hw' Hb' class Hr Hr' Hdecides Hright
    Hwrong.
  unfold class, in_range_units, decides, logit in *. cbn [snd] in *.
  apply Z.leb_le in Hr. apply Z.leb_le in Hr'. apply Z.ltb_lt in Hdecides.
  assert (Ha : ascending 0 (N.of_nat D) (integers g ew wr) = true).
  { rewrite ascending_integers. now apply andb_prop with (1 := Hw). }
  assert (Ha' : ascending 0 (N.of_nat D) (integers g ew wr') = true).
  { rewrite ascending_integers. now apply andb_prop with (1 := Hw'). }
  apply (gap_decides (precision g) (largest_exponent g) _ _ right wrong
    (intentions D es ew st (integers g ew wr) (integer_of g (es + ew) b))
    (intentions D es ew st (integers g ew wr') (integer_of g (es + ew) b')) Hright Hwrong).
  - now apply (terms_intended f).
  - now apply (terms_intended f).
  - discriminate.
  - discriminate.
  - now apply range_accepted.
  - now apply range_accepted.
  - assert (B := bound_in_units g D es ew st _ (integer_of g (es + ew) b) Ha).
    assert (B' := bound_in_units g D es ew st _ (integer_of g (es + ew) b') Ha').
    rewrite (intentions_exact D es ew st _ (integer_of g (es + ew) b) Ha).
    rewrite (intentions_exact D es ew st _ (integer_of g (es + ew) b') Ha').
    assert (Hq : 0 < IZR (2 ^ precision g - (Z.of_nat D + 2))) by (apply IZR_lt; lia).
    apply Rmult_lt_reg_r with (1 := Hq). rewrite Rmult_plus_distr_r.
    apply Rle_lt_trans with (1 := Rplus_le_compat _ _ _ _ B B').
    rewrite <- !Rmult_plus_distr_r, <- plus_IZR, <- Rmult_minus_distr_r, <- minus_IZR.
    rewrite Rmult_assoc, (Rmult_comm (bpow _ _)), <- Rmult_assoc, <- mult_IZR.
    apply Rmult_lt_compat_r; [ apply bpow_gt_0 | ]. now apply IZR_lt.
Qed.

(** A logit that is further from zero than its error has the sign of its exact value. *)
Lemma threshold_accepted : forall f g D es ew st (h : nat -> number f) wr b only,
  (forall k, (k < D)%nat -> represents _ _ (h k) (IZR (nth k st 0%Z) * bpow radix2 es)) ->
  forallb (fun k => Z.abs k <=? 2 ^ (largest_exponent g - 1 - es))%Z st = true ->
  (es <= largest_exponent g - 1)%Z -> (es + ew <= largest_exponent g - 1)%Z ->
  (Z.of_nat D + 2 < 2 ^ precision g)%Z ->
  well_formed g ew D wr = true -> is_multiple g (es + ew) b = true ->
  let class := (integers g ew wr, integer_of g (es + ew) b, underflow_units g D es ew (row_size (integers g ew wr))) in
  let l := logit D (tree_of st) class in
  let q := (2 ^ precision g - (Z.of_nat D + 2))%Z in
  in_range_units g D (es + ew) l (snd class) = true ->
  sums _ _ (Value (number_of g b) :: inner _ _ D (entry g wr) (fun k => cast _ _ _ _ (h k))) only ->
  (decides q l (0, 0, 0)%Z = true -> Bltb (B754_zero false) only = true) /\
  (decides q (0, 0, 0)%Z l = true -> Bltb only (B754_zero false) = true).
Proof.
  intros f g D es ew st h wr b only Hstate Hrange Hes Ht HD Hw Hb class l q Hr Honly.
  unfold l, class, in_range_units, decides, logit in *. cbn [snd] in *. apply Z.leb_le in Hr.
  assert (Ha : ascending 0 (N.of_nat D) (integers g ew wr) = true).
  { rewrite ascending_integers. now apply andb_prop with (1 := Hw). }
  assert (Hintended : Forall2 (intended (precision g) (largest_exponent g))
    (Value (number_of g b) :: inner _ _ D (entry g wr) (fun k => cast _ _ _ _ (h k)))
    (intentions D es ew st (integers g ew wr) (integer_of g (es + ew) b))) by now apply (terms_intended f).
  destruct (proj2 (sum_near_exact _ _ _ _ Honly _ Hintended)) as (r & Honly_means & Hnear);
    [ discriminate | now apply range_accepted | ].
  assert (B := bound_in_units g D es ew st _ (integer_of g (es + ew) b) Ha).
  rewrite (intentions_exact D es ew st _ (integer_of g (es + ew) b) Ha) in Hnear.
  assert (Hq : 0 < IZR q) by (apply IZR_lt; unfold q; lia). fold q in B.
  assert (Hzero : represents (precision g) (largest_exponent g) (B754_zero false) 0) by (now split).
  assert (Hpower := bpow_gt_0 radix2 (es + ew)).
  apply Rabs_le_inv in Hnear. set (E := error_bound _ _ _ _ _) in *.
  set (exact := (integer_of g (es + ew) b + dot (integers g ew wr) (tree_of st))%Z) in *.
  set (error := ((Z.of_nat D + 2) * _ + _)%Z) in *.
  split; intros Hdecides; apply Z.ltb_lt in Hdecides; rewrite ?Z.add_0_r, ?Z.add_0_l, ?Z.sub_0_r,
    ?Z.sub_0_l in Hdecides;
    apply IZR_lt in Hdecides; rewrite mult_IZR in Hdecides; apply Rmult_lt_compat_r with (1 := Hpower) in Hdecides.
  - apply less_than with (1 := Hzero) (2 := Honly_means).
    assert (E < IZR exact * bpow radix2 (es + ew)) by (apply Rmult_lt_reg_r with (1 := Hq); lra). lra.
  - apply less_than with (1 := Honly_means) (2 := Hzero). rewrite opp_IZR in Hdecides.
    assert (E < - IZR exact * bpow radix2 (es + ew)) by (apply Rmult_lt_reg_r with (1 := Hq); lra). lra.
Qed.
