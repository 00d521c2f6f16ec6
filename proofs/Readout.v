(** A linear readout, computed in any order: how far a logit can be from its exact value, and when the largest
    exact logit is the largest computed one.

    The state is cast to the format of the readout first, which may round it.  Products may underflow; a range
    condition excludes overflow. *)

From Coq Require Import ZArith Reals List Permutation Lra Lia.
From Flocq Require Import Core BinarySingleNaN.
From Transductor Require Import Floats Sums.
Import ListNotations.
Open Scope R_scope.

Section Readout.

Context (prec emax : Z) {prec_positive : Prec_gt_0 prec} {prec_below_emax : Prec_lt_emax prec emax}.
Notation represents := (represents prec emax).
Notation u := (unit_roundoff prec).
Notation eta := (underflow prec emax).

(** What a term should be: its exact value, and the size of its weight (0 for a bias).  The second factor of a
    product is near a number s, of which it may be the rounded cast. *)
Inductive intended : term prec emax -> R * R -> Prop :=
  | intended_bias : forall x r, represents x r -> intended (Value x) (r, 0)
  | intended_product : forall x y w c s, represents x w -> represents y c ->
      Rabs (c - s) <= u * Rabs s + eta -> intended (Product x y) (w * s, Rabs w).

(** The exact sum, the sum of absolute values, and the sum of the sizes of the weights. *)
Definition exact_value (l : list (R * R)) : R := fold_right (fun p s => fst p + s) 0 l.
Definition absolute_value (l : list (R * R)) : R := fold_right (fun p s => Rabs (fst p) + s) 0 l.
Definition weights (l : list (R * R)) : R := fold_right (fun p s => Rabs (snd p) + s) 0 l.

(** How far a sum of n terms can be off: relative to the absolute values A, and by underflow, whatever they are. *)
Definition growth (n : nat) : R := (1 + u) ^ S n.
Definition error_bound (n : nat) (A X : R) : R := (growth n - 1) * A + eta * (2 * INR n - 1 + X) * growth n.

Lemma u_positive : 0 < u. Proof. apply unit_roundoff_positive. Qed.
Lemma eta_positive : 0 < eta. Proof. apply underflow_positive. Qed.

Lemma growth_le : forall n m, (n <= m)%nat -> 1 + u <= growth n <= growth m.
Proof.
  intros n m Hnm. assert (Hu := u_positive). unfold growth. split.
  - rewrite <- (pow_1 (1 + u)) at 1. apply Rle_pow; [ lra | lia ].
  - apply Rle_pow; [ lra | lia ].
Qed.

Lemma absolute_nonnegative : forall l, 0 <= absolute_value l.
Proof. induction l as [ | p l IH ]; simpl; [ lra | ]. assert (H := Rabs_pos (fst p)). lra. Qed.

Lemma weights_nonnegative : forall l, 0 <= weights l.
Proof. induction l as [ | p l IH ]; simpl; [ lra | ]. assert (H := Rabs_pos (snd p)). lra. Qed.

Lemma exact_within_absolute : forall l, Rabs (exact_value l) <= absolute_value l.
Proof.
  induction l as [ | p l IH ]; simpl; [ rewrite Rabs_R0; lra | ].
  apply Rle_trans with (1 := Rabs_triang _ _). lra.
Qed.

Lemma exact_app : forall l m, exact_value (l ++ m) = exact_value l + exact_value m.
Proof. induction l as [ | p l IH ]; intros m; simpl; [ lra | rewrite IH; lra ]. Qed.
Lemma absolute_app : forall l m, absolute_value (l ++ m) = absolute_value l + absolute_value m.
Proof. induction l as [ | p l IH ]; intros m; simpl; [ lra | rewrite IH; lra ]. Qed.
Lemma weights_app : forall l m, weights (l ++ m) = weights l + weights m.
Proof. induction l as [ | p l IH ]; intros m; simpl; [ lra | rewrite IH; lra ]. Qed.

Lemma sums_of_permuted : forall l m, Permutation l m ->
  exact_value l = exact_value m /\ absolute_value l = absolute_value m /\ weights l = weights m /\ length l = length m.
Proof. induction 1; simpl; repeat split; try lra; try lia; intuition (try lra; try lia; congruence). Qed.

Lemma error_bound_le : forall n m A B X Y, (1 <= n <= m)%nat -> 0 <= A <= B -> 0 <= X <= Y ->
  0 <= error_bound n A X <= error_bound m B Y.
Proof.
  intros n m A B X Y Hnm HA HX. unfold error_bound. assert (Hu := u_positive). assert (He := eta_positive).
  destruct (growth_le n m) as [Hg Hgm]; [ lia | ].
  assert (Hn : 1 <= INR n <= INR m) by (split; [ change 1 with (INR 1) | ]; apply le_INR; lia).
  assert (H1 : 0 <= (growth n - 1) * A <= (growth m - 1) * B).
  { split; [ apply Rmult_le_pos; lra | apply Rmult_le_compat; lra ]. }
  assert (H2 : 0 <= eta * (2 * INR n - 1 + X) <= eta * (2 * INR m - 1 + Y)).
  { split; [ apply Rmult_le_pos; lra | apply Rmult_le_compat_l; lra ]. }
  assert (H3 : 0 <= eta * (2 * INR n - 1 + X) * growth n <= eta * (2 * INR m - 1 + Y) * growth m).
  { split; [ apply Rmult_le_pos; lra | apply Rmult_le_compat; lra ]. }
  lra.
Qed.

(** The product of a weight and a cast number, before it is rounded. *)
Lemma product_of_cast : forall w c s, Rabs (c - s) <= u * Rabs s + eta ->
  Rabs (w * c - w * s) <= u * Rabs (w * s) + eta * Rabs w.
Proof.
  intros w c s H. rewrite <- Rmult_minus_distr_l, !Rabs_mult.
  apply Rle_trans with (Rabs w * (u * Rabs s + eta)); [ apply Rmult_le_compat_l; [ apply Rabs_pos | exact H ] | lra ].
Qed.

(** One rounded operation: x is computed for y, and rounded. *)
Lemma rounded_near : forall x y d A, Rabs (x - y) <= d -> Rabs y <= A ->
  Rabs (rounded prec emax x - y) <= (1 + u) * d + u * A + eta /\ Rabs x <= A + d.
Proof.
  intros x y d A Hd HA. assert (Hu := u_positive).
  assert (Hx : Rabs x <= A + d).
  { replace x with (y + (x - y)) by ring. apply Rle_trans with (1 := Rabs_triang _ _). lra. }
  split; [ | exact Hx ].
  replace (rounded prec emax x - y) with ((rounded prec emax x - x) + (x - y)) by ring.
  apply Rle_trans with (1 := Rabs_triang _ _).
  assert (Hr := rounding_error prec emax x). assert (u * Rabs x <= u * (A + d)) by (apply Rmult_le_compat_l; lra). lra.
Qed.

Lemma triangle : forall x y r s d e, Rabs (x - r) <= d -> Rabs (y - s) <= e -> Rabs (x + y - (r + s)) <= d + e.
Proof.
  intros x y r s d e Hd He. replace (x + y - (r + s)) with ((x - r) + (y - s)) by ring.
  apply Rle_trans with (1 := Rabs_triang _ _). lra.
Qed.

(** The bound of a product, and of a fused multiply-add onto a sum that is d away from its exact value. *)
Lemma bound_of_one : forall a X, 0 <= a -> 0 <= X ->
  (1 + u) * (u * a + eta * X) + u * a + eta <= error_bound 1 a X.
Proof.
  intros a X Ha HX. unfold error_bound, growth. simpl INR. assert (Hu := u_positive). assert (He := eta_positive).
  assert (0 <= u * eta) by (apply Rmult_le_pos; lra). assert (0 <= u * eta * X) by (apply Rmult_le_pos; lra).
  assert (0 <= u * (u * eta * X)) by (apply Rmult_le_pos; lra).
  assert (0 <= u * (u * eta)) by (apply Rmult_le_pos; lra).
  simpl. nra.
Qed.

Lemma bound_of_more : forall n a A X Y, (1 <= n)%nat -> 0 <= a -> 0 <= A -> 0 <= X -> 0 <= Y ->
  (1 + u) * (u * a + eta * X + error_bound n A Y) + u * (a + A) + eta <= error_bound (S n) (a + A) (X + Y).
Proof.
  intros n a A X Y Hn Ha HA HX HY. unfold error_bound. assert (Hu := u_positive). assert (He := eta_positive).
  destruct (growth_le n n (le_n n)) as [Hg _].
  replace (growth (S n)) with ((1 + u) * growth n) by (unfold growth; simpl; ring).
  rewrite S_INR. assert (HN : 1 <= INR n) by (change 1 with (INR 1); now apply le_INR).
  set (g := growth n) in *. set (N := INR n) in *.
  assert (H1 : 0 <= (g - (1 + u)) * ((1 + u) * a)) by (apply Rmult_le_pos; [ lra | apply Rmult_le_pos; lra ]).
  assert (H2 : 0 <= (g - 1) * ((1 + u) * (eta * X))).
  { apply Rmult_le_pos; [ lra | apply Rmult_le_pos; [ lra | apply Rmult_le_pos; lra ] ]. }
  assert (H3 : 0 <= ((1 + u) * g * 2 - 1) * eta).
  { apply Rmult_le_pos; [ | lra ]. assert (1 * 1 <= (1 + u) * g) by (apply Rmult_le_compat; lra). lra. }
  lra.
Qed.

Lemma bound_of_sum : forall n m A B X Y, (1 <= n)%nat -> (1 <= m)%nat -> 0 <= A -> 0 <= B -> 0 <= X -> 0 <= Y ->
  (1 + u) * (error_bound n A X + error_bound m B Y) + u * (A + B) + eta <= error_bound (n + m) (A + B) (X + Y).
Proof.
  intros n m A B X Y Hn Hm HA HB HX HY. assert (Hu := u_positive). assert (He := eta_positive).
  assert (HN : 1 <= INR n) by (change 1 with (INR 1); now apply le_INR).
  assert (HM : 1 <= INR m) by (change 1 with (INR 1); now apply le_INR).
  set (g := (1 + u) ^ (n + m)).
  assert (Hgn : 1 + u <= growth n <= g).
  { split; [ apply (growth_le n n); lia | unfold growth, g; apply Rle_pow; [ lra | lia ] ]. }
  assert (Hgm : 1 + u <= growth m <= g).
  { split; [ apply (growth_le m m); lia | unfold growth, g; apply Rle_pow; [ lra | lia ] ]. }
  unfold error_bound. replace (growth (n + m)) with ((1 + u) * g) by reflexivity. rewrite plus_INR.
  set (N := INR n) in *. set (M := INR m) in *. set (gn := growth n) in *. set (gm := growth m) in *.
  assert (H1 : 0 <= (g - gn) * ((1 + u) * A)) by (apply Rmult_le_pos; [ lra | apply Rmult_le_pos; lra ]).
  assert (H2 : 0 <= (g - gm) * ((1 + u) * B)) by (apply Rmult_le_pos; [ lra | apply Rmult_le_pos; lra ]).
  assert (H3 : 0 <= (g - gn) * ((1 + u) * (eta * (2 * N - 1 + X)))).
  { apply Rmult_le_pos; [ lra | apply Rmult_le_pos; [ lra | apply Rmult_le_pos; lra ] ]. }
  assert (H4 : 0 <= (g - gm) * ((1 + u) * (eta * (2 * M - 1 + Y)))).
  { apply Rmult_le_pos; [ lra | apply Rmult_le_pos; [ lra | apply Rmult_le_pos; lra ] ]. }
  assert (H5 : 0 <= ((1 + u) * g - 1) * eta).
  { apply Rmult_le_pos; [ | lra ]. assert (1 * 1 <= (1 + u) * g) by (apply Rmult_le_compat; lra). lra. }
  lra.
Qed.

(** Nothing overflows while the absolute values and the error together stay below half of the largest power of two. *)
Definition in_range (l : list (R * R)) : Prop :=
  absolute_value l + error_bound (length l) (absolute_value l) (weights l) <= safe_size emax.

Lemma in_range_part : forall l m n, Permutation m (l ++ n) -> l <> [] -> in_range m -> in_range l.
Proof.
  intros l m n Hperm Hl Hm. unfold in_range in *. destruct (sums_of_permuted _ _ Hperm) as (_ & HA & HX & Hn).
  rewrite HA, HX, Hn, absolute_app, weights_app, app_length in Hm.
  assert (Ha := absolute_nonnegative l). assert (Hb := absolute_nonnegative n).
  assert (Hx := weights_nonnegative l). assert (Hy := weights_nonnegative n).
  assert (Hlength : (1 <= length l)%nat) by (destruct l; [ contradiction | simpl; lia ]).
  destruct (error_bound_le (length l) (length l + length n) (absolute_value l) (absolute_value l + absolute_value n)
    (weights l) (weights l + weights n)) as [_ Hle]; try lia; try lra.
Qed.

(** Theorem (c), first half: how far a logit can be from its exact value. *)
Theorem sum_near_exact : forall terms c, sums prec emax terms c ->
  forall l, Forall2 intended terms l ->
  (l = [] -> represents c 0) /\
  (l <> [] -> in_range l -> exists r, represents c r /\
    Rabs (r - exact_value l) <= error_bound (length l) (absolute_value l) (weights l)).
Proof.
  assert (Hu := u_positive). assert (Heta := eta_positive).
  assert (Hone : forall x y w c s, represents x w -> represents y c ->
    Rabs (c - s) <= u * Rabs s + eta -> in_range [(w * s, Rabs w)] ->
    Rabs (rounded prec emax (w * c) - (w * s)) <= error_bound 1 (Rabs (w * s)) (Rabs w) /\
    Rabs (rounded prec emax (w * c)) < bpow radix2 emax).
  { intros x y w c s Hx Hy Hcast Hrange. unfold in_range in Hrange. simpl in Hrange.
    rewrite !Rplus_0_r, Rabs_Rabsolu in Hrange.
    destruct (rounded_near _ _ _ _ (product_of_cast w c s Hcast) (Rle_refl _)) as [Hnear Hsize].
    assert (Hb := bound_of_one (Rabs (w * s)) (Rabs w) (Rabs_pos _) (Rabs_pos _)).
    split; [ lra | ]. apply safe_rounding; try assumption.
    assert (Ha := Rabs_pos (w * s)). assert (Hw := Rabs_pos w).
    assert (0 <= u * Rabs (w * s)) by (apply Rmult_le_pos; lra).
    assert (0 <= eta * Rabs w) by (apply Rmult_le_pos; lra).
    assert (0 <= u * (u * Rabs (w * s) + eta * Rabs w)) by (apply Rmult_le_pos; lra). lra. }
  intros terms c Hsums.
  induction Hsums as [ z Hz | x | x y | k m a b _ IHk _ IHm | x y k a _ IH | k m a Hperm _ IH ]; intros l Hl.
  - inversion Hl; subst. split; [ intros _; exact Hz | intros H; now contradiction H ].
  - inversion Hl as [ | ? p ? q Hp Hq ]; subst. inversion Hq; subst. split; [ discriminate | intros _ _ ].
    inversion Hp as [ ? r Hx | ]; subst. exists r. split; [ exact Hx | ]. simpl.
    rewrite !Rplus_0_r, Rminus_eq_0, Rabs_R0.
    refine (proj1 (error_bound_le 1 1 (Rabs r) (Rabs r) 0 0 _ _ _)); [ lia | split; [ apply Rabs_pos | lra ] | lra ].
  - inversion Hl as [ | ? p ? q Hp Hq ]; subst. inversion Hq; subst. split; [ discriminate | intros _ Hrange ].
    inversion Hp as [ | ? ? w c s Hx Hy Hcast ]; subst. destruct (Hone x y w c s Hx Hy Hcast Hrange) as [Hnear Hsize].
    exists (rounded prec emax (w * c)). split; [ now apply mul_rounds | ].
    simpl. now rewrite !Rplus_0_r, Rabs_Rabsolu.
  - apply Forall2_app_inv_l in Hl as (lk & lm & Hk & Hm & ->). destruct (IHk lk Hk) as [Ek Bk].
    destruct (IHm lm Hm) as [Em Bm].
    destruct lk as [ | pk lk' ].
    { (* adding to an empty sum, that is to zero, changes nothing *)
      assert (Ha := Ek eq_refl).
      assert (Hzero : forall r, represents b r -> represents (add prec emax a b) r).
      { intros r Hb. rewrite <- (Rplus_0_l r). apply add_exact; rewrite ?Rplus_0_l; try assumption;
        [ exact (represented_is_writable _ _ _ _ Hb) | exact (represented_below_overflow _ _ _ _ Hb) ]. }
      simpl. split; [ intros ->; apply Hzero; now apply Em | intros Hne Hrange ].
      destruct (Bm Hne Hrange) as (r & Hr & Hbound). exists r. split; [ now apply Hzero | exact Hbound ]. }
    destruct lm as [ | pm lm' ].
    { assert (Hb := Em eq_refl). rewrite app_nil_r.
      split; [ discriminate | intros Hne Hrange ].
      destruct (Bk Hne Hrange) as (r & Hr & Hbound). exists r. split; [ | exact Hbound ].
      rewrite <- (Rplus_0_r r). apply add_exact; rewrite ?Rplus_0_r; try assumption;
        [ exact (represented_is_writable _ _ _ _ Hr) | exact (represented_below_overflow _ _ _ _ Hr) ]. }
    remember (pk :: lk') as l1 eqn:E1. remember (pm :: lm') as l2 eqn:E2.
    assert (N1 : l1 <> []) by (subst; discriminate). assert (N2 : l2 <> []) by (subst; discriminate).
    assert (L1 : (1 <= length l1)%nat) by (subst; simpl; lia).
    assert (L2 : (1 <= length l2)%nat) by (subst; simpl; lia).
    clear E1 E2 pk lk' pm lm'.
    split; [ intros H; now apply app_eq_nil in H as [H _] | intros _ Hrange ].
    destruct (Bk N1) as (r & Hr & Hnear_r).
    { apply in_range_part with (m := l1 ++ l2) (n := l2); auto. }
    destruct (Bm N2) as (s & Hs & Hnear_s).
    { apply in_range_part with (m := l1 ++ l2) (n := l1); auto. apply Permutation_app_comm. }
    unfold in_range in Hrange. rewrite exact_app, absolute_app, weights_app, app_length in *.
    assert (A1 := absolute_nonnegative l1). assert (A2 := absolute_nonnegative l2).
    assert (X1 := weights_nonnegative l1). assert (X2 := weights_nonnegative l2).
    assert (Hb := bound_of_sum _ _ _ _ _ _ L1 L2 A1 A2 X1 X2).
    assert (Hsum : Rabs (exact_value l1 + exact_value l2) <= absolute_value l1 + absolute_value l2).
    { apply Rle_trans with (1 := Rabs_triang _ _). assert (H1 := exact_within_absolute l1).
      assert (H2 := exact_within_absolute l2). lra. }
    destruct (rounded_near _ _ _ _ (triangle _ _ _ _ _ _ Hnear_r Hnear_s) Hsum) as [Hnear Hsize].
    destruct (error_bound_le (length l1) (length l1) _ _ _ _ (conj L1 (le_n _)) (conj A1 (Rle_refl _)) (conj X1
      (Rle_refl _))) as [P1 _].
    destruct (error_bound_le (length l2) (length l2) _ _ _ _ (conj L2 (le_n _)) (conj A2 (Rle_refl _)) (conj X2
      (Rle_refl _))) as [P2 _].
    set (E1 := error_bound (length l1) _ _) in *. set (E2 := error_bound (length l2) _ _) in *.
    assert (0 <= u * (E1 + E2)) by (apply Rmult_le_pos; lra).
    assert (0 <= u * (absolute_value l1 + absolute_value l2)) by (apply Rmult_le_pos; lra).
    exists (rounded prec emax (r + s)). split; [ | lra ].
    apply add_rounds; try assumption. apply safe_rounding; try assumption. lra.
  - inversion Hl as [ | ? p ? q Hp Hq ]; subst. split; [ discriminate | intros _ Hrange ].
    inversion Hp as [ | ? ? w c s Hx Hy Hcast ]; subst. destruct (IH q Hq) as [Eq Bq]. destruct q as [ | pq q' ].
    { destruct (Hone x y w c s Hx Hy Hcast Hrange) as [Hnear Hsize]. assert (Ha := Eq eq_refl).
      exists (rounded prec emax (w * c)). split.
      - rewrite <- (Rplus_0_r (w * c)). apply fma_rounds; try assumption. now rewrite Rplus_0_r.
      - simpl. now rewrite !Rplus_0_r, Rabs_Rabsolu. }
    remember (pq :: q') as l1 eqn:E1. assert (N1 : l1 <> []) by (subst; discriminate).
    assert (L1 : (1 <= length l1)%nat) by (subst; simpl; lia). clear E1 pq q'.
    destruct (Bq N1) as (r & Hr & Hnear_r).
    { apply in_range_part with (m := (w * s, Rabs w) :: l1) (n := [(w * s, Rabs w)]); auto.
      apply Permutation_cons_append. }
    unfold in_range in Hrange. simpl exact_value. simpl absolute_value in *. simpl weights in *. cbn [length] in *.
    rewrite Rabs_Rabsolu in *.
    assert (A1 := absolute_nonnegative l1). assert (X1 := weights_nonnegative l1).
    assert (Hb := bound_of_more _ _ _ _ _ L1 (Rabs_pos (w * s)) A1 (Rabs_pos w) X1).
    assert (Hsum : Rabs (w * s + exact_value l1) <= Rabs (w * s) + absolute_value l1).
    { apply Rle_trans with (1 := Rabs_triang _ _). assert (H1 := exact_within_absolute l1). lra. }
    destruct (rounded_near _ _ _ _ (triangle _ _ _ _ _ _ (product_of_cast w c s Hcast) Hnear_r) Hsum) as [Hnear Hsize].
    destruct (error_bound_le (length l1) (length l1) _ _ _ _ (conj L1 (le_n _)) (conj A1 (Rle_refl _)) (conj X1
      (Rle_refl _))) as [P1 _].
    set (E1 := error_bound (length l1) _ _) in *.
    assert (Ha := Rabs_pos (w * s)). assert (Hw := Rabs_pos w).
    assert (0 <= u * Rabs (w * s)) by (apply Rmult_le_pos; lra).
    assert (0 <= eta * Rabs w) by (apply Rmult_le_pos; lra).
    assert (0 <= u * (u * Rabs (w * s) + eta * Rabs w + E1)) by (apply Rmult_le_pos; lra).
    assert (0 <= u * (Rabs (w * s) + absolute_value l1)) by (apply Rmult_le_pos; lra).
    exists (rounded prec emax (w * c + r)). split; [ | lra ].
    apply fma_rounds; try assumption. apply safe_rounding; try assumption. lra.
  - apply Permutation_sym in Hperm. destruct (Permutation_Forall2 Hperm Hl) as (l' & Hl' & Hk).
    destruct (IH l' Hk) as [E B]. destruct (sums_of_permuted _ _ Hl') as (H1 & H2 & H3 & H4). split.
    + intros ->. apply Permutation_nil in Hl'. now apply E.
    + intros Hne Hrange. rewrite H1, H2, H3, H4. apply B.
      * intros ->. apply Permutation_sym, Permutation_nil in Hl'. contradiction.
      * unfold in_range in *. now rewrite <- H2, <- H3, <- H4.
Qed.

(** Theorem (c), second half: a gap above the two bounds decides which computed logit is larger. *)
Theorem gap_decides : forall right_terms wrong_terms right wrong l m,
  sums prec emax right_terms right -> sums prec emax wrong_terms wrong ->
  Forall2 intended right_terms l -> Forall2 intended wrong_terms m ->
  l <> [] -> m <> [] -> in_range l -> in_range m ->
  error_bound (length l) (absolute_value l) (weights l) + error_bound (length m) (absolute_value m) (weights m)
    < exact_value l - exact_value m ->
  Bltb wrong right = true.
Proof.
  intros rt wt right wrong l m Hright Hwrong Hl Hm Nl Nm Rl Rm Hgap.
  destruct (proj2 (sum_near_exact _ _ Hright _ Hl) Nl Rl) as (r & Hr & Er).
  destruct (proj2 (sum_near_exact _ _ Hwrong _ Hm) Nm Rm) as (s & Hs & Es).
  apply less_than with (1 := Hs) (2 := Hr).
  apply Rabs_le_inv in Er. apply Rabs_le_inv in Es. lra.
Qed.

End Readout.

(** A number that is cast to the format of the readout is near what it was. *)
Lemma cast_is_near : forall prec emax prec' emax' (positive : Prec_gt_0 prec') (below : Prec_lt_emax prec' emax') x s,
  represents prec emax x s -> Rabs s <= safe_size emax' ->
  exists c, represents prec' emax' (cast prec emax prec' emax' x) c /\
    Rabs (c - s) <= unit_roundoff prec' * Rabs s + underflow prec' emax'.
Proof.
  intros prec emax prec' emax' positive below x s Hx Hs. exists (rounded prec' emax' s). split.
  - apply cast_rounds; [ exact Hx | ]. now apply safe_rounding.
  - now apply rounding_error.
Qed.
