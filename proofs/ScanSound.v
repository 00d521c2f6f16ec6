(** If the checker accepts why a scan is exact, then every computed state is the exact one. *)

From Coq Require Import ZArith NArith Reals List Lia Bool.
From Flocq Require Import Core BinarySingleNaN.
From Transductor Require Import Floats Sums Scan Monomial Integers Patterns Certificate Lookup Checker.
Import ListNotations.

Lemma forallb_nth : forall A (test : A -> bool) l d i, forallb test l = true -> test d = true ->
  test (nth i l d) = true.
Proof.
  intros A test l d i Hl Hd. destruct (nth_in_or_default i l d) as [Hin | ->]; [ | exact Hd ].
  now apply (proj1 (forallb_forall _ _) Hl).
Qed.

Lemma nth_mapped_seq : forall A (f : nat -> A) d D i, (i < D)%nat -> nth i (map f (seq 0 D)) d = f i.
Proof.
  intros A f d D i Hi. rewrite nth_indep with (d' := f 0%nat) by (rewrite map_length, seq_length; exact Hi).
  rewrite map_nth, seq_nth by exact Hi. reflexivity.
Qed.

Lemma mapped_nth_seq : forall A (l : list A) d, map (fun i => nth i l d) (seq 0 (length l)) = l.
Proof.
  intros A l d. induction l as [ | x l IH ]; [ reflexivity | ].
  simpl. f_equal. rewrite <- seq_shift, map_map. exact IH.
Qed.

(** A row of bit patterns stands for its row of integers. *)

Lemma ascending_integers : forall f unit r least most,
  ascending least most (integers f unit r) = ascending least most r.
Proof.
  intros f unit r. induction r as [ | [c b] r IH ]; intros least most; simpl; [ reflexivity | now rewrite IH ].
Qed.

Lemma entry_means : forall f unit D r j, well_formed f unit D r = true ->
  represents _ _ (entry f r j) (IZR (integer_at (integers f unit r) (N.of_nat j)) * bpow radix2 unit).
Proof.
  intros f unit D r j H. unfold well_formed in H. apply andb_prop in H as [_ H]. unfold entry, integer_at.
  induction r as [ | [c b] r IH ]; simpl in *.
  - split; [ reflexivity | simpl; ring ].
  - apply andb_prop in H as [Hb Hr]. destruct (N.eqb c (N.of_nat j)); [ now apply integer_of_correct | now apply IH ].
Qed.

Section Exact.

Context (f : format) (D : nat) (patterns : list (list row)) (start_patterns : list Z) (unit : Z).
Hypothesis table_well_formed : forallb (forallb (well_formed f 0 D)) patterns = true.
Hypothesis start_well_formed : forallb (is_multiple f unit) start_patterns = true.
Hypothesis dimension_is : length start_patterns = D.

Definition matrices : list (list integer_row) := map (map (integers f 0)) patterns.
Definition start_state : list Z := map (integer_of f unit) start_patterns.

(** The table and the initial state as functions of indices. *)
Definition T (a i j : nat) : Z := integer_at (nth i (nth a matrices []) []) (N.of_nat j).
Definition v (i : nat) : Z := nth i start_state 0%Z.

Lemma row_of_table : forall a i,
  nth i (nth a matrices []) [] = integers f 0 (nth i (nth a patterns []) []).
Proof.
  intros a i. unfold matrices. change (@nil integer_row) with (map (integers f 0) []) at 1. rewrite map_nth.
  change (@nil (N * Z)) with (integers f 0 []) at 1. now rewrite map_nth.
Qed.

Lemma row_well_formed : forall a i, well_formed f 0 D (nth i (nth a patterns []) []) = true.
Proof. intros a i. apply forallb_nth; [ | reflexivity ]. now apply forallb_nth. Qed.

Lemma row_ascending : forall a i, ascending 0 (N.of_nat D) (nth i (nth a matrices []) []) = true.
Proof.
  intros a i. rewrite row_of_table, ascending_integers. now apply andb_prop with (1 := row_well_formed a i).
Qed.

Lemma table_means : forall a i j, (i < D)%nat -> (j < D)%nat ->
  represents _ _ (entry f (nth i (nth a patterns []) []) j) (IZR (T a i j)).
Proof.
  intros a i j _ _. unfold T. rewrite row_of_table, <- (Rmult_1_r (IZR _)). change 1%R with (bpow radix2 0).
  apply entry_means with D. apply row_well_formed.
Qed.

Lemma initial_means : forall i, (i < D)%nat ->
  represents _ _ (number_of f (nth i start_patterns 0%Z)) (IZR (v i) * bpow radix2 unit).
Proof.
  intros i Hi. unfold v, start_state.
  rewrite (nth_indep (map (integer_of f unit) start_patterns) 0%Z (integer_of f unit 0)) by (rewrite map_length;
    lia). rewrite map_nth.
  apply integer_of_correct. apply (proj1 (forallb_forall _ _) start_well_formed). apply nth_In. lia.
Qed.

(** The checker's step is the matrix of a letter, applied to the state. *)
Lemma stepped_is_applied : forall a st i,
  nth i (stepped matrices a (tree_of st)) 0%Z = applied D (T a) (fun k => nth k st 0%Z) i.
Proof.
  intros a st i. unfold stepped, applied, T.
  transitivity (dot (nth i (nth a matrices []) []) (tree_of st));
    [ apply (map_nth (fun r => dot r (tree_of st)) _ []) | unfold dot ].
  rewrite (row_sum_is_summed _ D _ 0%N); [ | intros; ring | apply row_ascending ].
  apply summed_ext. intros k _. rewrite component_tree_of, Nnat.Nat2N.id. reflexivity.
Qed.

Lemma initial_size : size start_state = summed D (fun i => Z.abs (v i)).
Proof.
  rewrite <- size_is_summed. f_equal. unfold v. rewrite <- dimension_is.
  replace (length start_patterns) with (length start_state) by (unfold start_state; apply map_length).
  symmetry. apply mapped_nth_seq.
Qed.

Lemma initial_list : map v (seq 0 D) = start_state.
Proof.
  unfold v. rewrite <- dimension_is.
  replace (length start_patterns) with (length start_state) by (unfold start_state; apply map_length).
  apply mapped_nth_seq.
Qed.

Lemma rows_accepted : rows_exact matrices = true ->
  forall a i, (i < D)%nat -> (summed D (fun j => Z.abs (T a i j)) <= 1)%Z.
Proof.
  intros H a i _. unfold T.
  rewrite <- (row_sum_is_summed (fun _ k => Z.abs k) D _ 0%N); [ | reflexivity | apply row_ascending ].
  apply Z.leb_le. apply (forallb_nth _ (fun r => row_size r <=? 1)%Z); [ | reflexivity ].
  apply (forallb_nth _ (forallb (fun r => row_size r <=? 1)%Z)); [ exact H | reflexivity ].
Qed.

Lemma columns_accepted : columns_exact D matrices = true ->
  forall a j, (j < D)%nat -> (summed D (fun i => Z.abs (T a i j)) <= 1)%Z.
Proof.
  intros H a j Hj. unfold T. destruct (nth_in_or_default a matrices []) as [Hin | ->].
  - apply (proj1 (forallb_forall _ _) H) in Hin. apply andb_prop in Hin as [Hlength Hcolumns].
    apply Nat.eqb_eq in Hlength. apply (all_below_spec _ _ Hcolumns) in Hj. apply Z.leb_le in Hj.
    etransitivity; [ | exact Hj ]. apply Z.eq_le_incl. unfold summed.
    transitivity (total (map (fun r => Z.abs (integer_at r (N.of_nat j)))
      (map (fun i => nth i (nth a matrices []) []) (seq 0 (length (nth a matrices []))))));
      [ now rewrite map_map, Hlength | now rewrite mapped_nth_seq ].
  - transitivity (summed D (fun _ => 0 * 0)%Z); [ | rewrite summed_scaled; lia ].
    apply summed_le. intros i _. destruct i; reflexivity.
Qed.

(** All products of letters are in the list, or zero: that of a word with a letter that does not exist. *)
Lemma same_columns_equal : forall A B, same_columns A B = true -> A = B.
Proof.
  intros A B H. apply andb_prop in H as [Hlength H]. apply Nat.eqb_eq in Hlength. revert B Hlength H.
  induction A as [ | x A IH ]; destruct B as [ | y B ]; intros Hlength H; try discriminate; [ reflexivity | ].
  simpl in H. apply andb_prop in H as [Hx H]. apply same_equal in Hx. f_equal; [ exact Hx | ].
  apply IH; [ now injection Hlength | exact H ].
Qed.

Lemma missing_letter : forall a i j, (length matrices <= a)%nat -> T a i j = 0%Z.
Proof. intros a i j Ha. unfold T. rewrite nth_overflow with (n := a) by exact Ha. now destruct i. Qed.

Lemma products_accepted : forall largest products state,
  bounded_exact f D unit matrices state largest products = true ->
  forall w i j, (i < D)%nat -> (j < D)%nat -> (Z.abs (product D T w i j) <= largest)%Z.
Proof.
  intros largest products state H. unfold bounded_exact in H.
  repeat (apply andb_prop in H as [H ?]).
  match goal with B : (0 <=? largest)%Z = true |- _ => apply Z.leb_le in B; rename B into Hlargest end.
  match goal with B : forallb (product_closed _ _) _ = true |- _ => rename B into Hclosed end.
  match goal with B : forallb (fun p => forallb (forallb _) _) _ = true |- _ => rename B into Hbound end.
  assert (Hall : forall w, (forall i j, (i < D)%nat -> (j < D)%nat -> product D T w i j = 0%Z) \/
    exists p, In p products /\ length (product_columns p) = D /\
    forall i j, (i < D)%nat -> (j < D)%nat -> product D T w i j = nth i (nth j (product_columns p) []) 0%Z).
  { induction w as [ | a w IH ] using rev_ind.
    - right. destruct products as [ | p products ]; [ discriminate | ]. exists p. split; [ now left | ].
      apply same_columns_equal in H. rewrite <- H. unfold identity_columns. rewrite map_length, seq_length.
      split; [ reflexivity | ]. intros i j Hi Hj. rewrite !nth_mapped_seq by assumption. reflexivity.
    - assert (Hstep : forall i j, product D T (w ++ [a]) i j = applied D (T a) (fun k => product D T w k j) i).
      { intros i j. unfold product at 1. now rewrite run_app. }
      assert (Hzero : (forall i j, (i < D)%nat -> (j < D)%nat -> forall k, (k < D)%nat ->
        (T a i k * product D T w k j = 0)%Z) ->
        forall i j, (i < D)%nat -> (j < D)%nat -> product D T (w ++ [a]) i j = 0%Z).
      { intros Hterms i j Hi Hj. rewrite Hstep. unfold applied.
        transitivity (summed D (fun _ => 0 * 0)%Z); [ | rewrite summed_scaled; lia ].
        apply summed_ext. intros k Hk. now rewrite Hterms. }
      destruct IH as [IH | (p & Hp & Hlength & Hcolumns)].
      { left. apply Hzero. intros i j Hi Hj k Hk. rewrite IH by assumption. ring. }
      destruct (Nat.lt_ge_cases a (length matrices)) as [Ha | Ha].
      + right. assert (Hp' := proj1 (forallb_forall _ _) Hclosed p Hp). unfold product_closed in Hp'.
        apply (all_below_spec _ _ Hp') in Ha. clear Hp'. cbv beta in Ha. rewrite lookup_tree_of in Ha.
        destruct (nth_error products _) as [q | ] eqn:Hq; [ | discriminate ]. apply same_columns_equal in Ha.
        exists q. split; [ now apply nth_error_In in Hq | ]. rewrite <- Ha, !map_length.
        split; [ exact Hlength | ]. intros i j Hi Hj. rewrite map_map.
        rewrite nth_indep with (n := j) (d' := stepped matrices a (tree_of [])) by (rewrite map_length; lia).
        rewrite (map_nth (fun x => stepped matrices a (tree_of x))), stepped_is_applied, Hstep. unfold applied.
        apply summed_ext. intros k Hk. now rewrite Hcolumns.
      + left. apply Hzero. intros i j Hi Hj k Hk. rewrite missing_letter by exact Ha. ring. }
  intros w i j Hi Hj. destruct (Hall w) as [Hzero | (p & Hp & Hlength & Hcolumns)].
  - rewrite Hzero by assumption. lia.
  - rewrite Hcolumns by assumption. apply Z.leb_le.
    apply (proj1 (forallb_forall _ _) Hbound) in Hp.
    apply (forallb_nth _ (fun k => Z.abs k <=? largest)%Z); [ | apply Z.leb_le; simpl; lia ].
    now apply (forallb_nth _ (forallb (fun k => Z.abs k <=? largest)%Z)).
Qed.

Theorem scan_accepted : forall why, scan_exact f D unit matrices start_state why = true ->
  forall w h,
  computed_state _ _ D (fun a i j => entry f (nth i (nth a patterns []) []) j)
    (fun i => number_of f (nth i start_patterns 0%Z)) w h ->
  forall i, (i < D)%nat -> represents _ _ (h i) (IZR (run D T v w i) * bpow radix2 unit).
Proof.
  intros [ | | largest products ] H.
  - apply exact_state_by_rows; [ exact table_means | exact initial_means | now apply rows_accepted ].
  - apply andb_prop in H as [Hcolumns Hroom]. unfold state_has_room in Hroom.
    repeat (apply andb_prop in Hroom as [Hroom ?]).
    apply exact_state_by_columns; [ exact table_means | exact initial_means | now apply columns_accepted | ].
    rewrite initial_list. split; [ now apply Z.leb_le | split; [ now apply Z.leb_le | ] ].
    match goal with B : (unit <=? _)%Z = true |- _ => apply Z.leb_le in B; rename B into Hunit end.
    match goal with B : (_ <? _)%Z = true |- _ => apply Z.ltb_lt in B; rename B into Hsize end.
    replace (largest_exponent f) with ((largest_exponent f - unit) + unit)%Z at 1 by ring. rewrite bpow_plus.
    apply Rmult_lt_compat_r; [ apply bpow_gt_0 | ]. rewrite <- IZR_Zpower by lia. now apply IZR_lt.
  - assert (Hproducts := products_accepted _ _ _ H). unfold scan_exact, bounded_exact in H.
    repeat (apply andb_prop in H as [H ?]). rewrite initial_size in *.
    apply exact_state_by_bound with (largest := largest) (units := summed D (fun i => Z.abs (v i)));
      [ exact table_means | exact initial_means | exact Hproducts | lia | | | | ]; try (apply Z.leb_le; assumption).
    now apply Z.ltb_lt.
Qed.

End Exact.
