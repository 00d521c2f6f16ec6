(** Matrices with at most one entry, 1 or -1, in every row, or in every column: their scans are exact.

    Over the integers, "at most one entry, 1 or -1" is "the absolute values sum to at most 1". *)

From Coq Require Import ZArith Reals List Lia.
From Flocq Require Import Core BinarySingleNaN.
From Transductor Require Import Floats Sums Scan.
Import ListNotations.

Section Sizes.

Context (D : nat).
Notation summed := (summed D).

Lemma summed_le : forall f g, (forall k, (k < D)%nat -> (f k <= g k)%Z) -> (summed f <= summed g)%Z.
Proof.
  intros f g H. unfold Scan.summed.
  assert (Hin : forall k, In k (seq 0 D) -> (f k <= g k)%Z) by (intros k Hk; apply in_seq in Hk; apply H; lia).
  revert Hin. generalize (seq 0 D) as l. induction l as [ | k l IH ]; intros Hin; simpl; [ lia | ].
  assert (f k <= g k)%Z by (apply Hin; now left).
  assert (total (map f l) <= total (map g l))%Z by (apply IH; intros j Hj; apply Hin; now right). lia.
Qed.

Lemma abs_summed : forall f, (Z.abs (summed f) <= summed (fun k => Z.abs (f k)))%Z.
Proof.
  intros f. unfold Scan.summed. generalize (seq 0 D) as l. induction l as [ | k l IH ]; simpl; lia.
Qed.

Lemma size_is_summed : forall f, size (map f (seq 0 D)) = summed (fun k => Z.abs (f k)).
Proof. intros f. unfold size, Scan.summed. now rewrite map_map. Qed.

Lemma one_of_summed : forall f k, (k < D)%nat -> (forall j, (0 <= f j)%Z) -> (f k <= summed f)%Z.
Proof.
  intros f k Hk Hpos. unfold Scan.summed. assert (Hin : In k (seq 0 D)) by (apply in_seq; lia).
  revert Hin. generalize (seq 0 D) as l. clear Hk.
  assert (Htotal : forall l, (0 <= total (map f l))%Z).
  { induction l as [ | j l IH ]; simpl; [ lia | specialize (Hpos j); lia ]. }
  induction l as [ | j l IH ]; simpl; [ contradiction | intros [-> | Hin] ].
  - specialize (Htotal l). lia.
  - specialize (IH Hin). specialize (Hpos j). lia.
Qed.

Lemma size_of_unit_vector : forall j, (summed (fun i => Z.abs (unit_vector j i)) <= 1)%Z.
Proof.
  intros j. destruct (Nat.lt_ge_cases j D) as [Hj | Hj].
  - apply Z.eq_le_incl. unfold Scan.summed.
    etransitivity; [ | apply (total_single (seq 0 D) j (fun _ => 1%Z) (seq_NoDup _ _)); apply in_seq; lia ].
    f_equal. apply map_ext. intros i. unfold unit_vector. rewrite Nat.eqb_sym. now destruct (Nat.eqb j i).
  - transitivity (summed (fun _ => 0 * 0)%Z).
    + apply summed_le. intros i Hi. unfold unit_vector. destruct (Nat.eqb_spec i j); lia.
    + rewrite summed_scaled. lia.
Qed.

(** Where absolute values sum to at most 1, there is at most one entry, and it is 1 or -1. *)
Lemma at_most_one : forall a, (summed (fun k => Z.abs (a k)) <= 1)%Z ->
  (forall k, (k < D)%nat -> a k = 0%Z) \/
  exists i, (i < D)%nat /\ forall k, (k < D)%nat -> Z.abs (a k) = unit_vector k i.
Proof.
  intros a. unfold Scan.summed.
  assert (Hseq : forall k, (k < D)%nat <-> In k (seq 0 D)) by (intros k; rewrite in_seq; lia).
  enough (H : forall l, (total (map (fun k => Z.abs (a k)) l) <= 1)%Z -> NoDup l ->
    (forall k, In k l -> a k = 0%Z) \/ exists i, In i l /\ forall k, In k l -> Z.abs (a k) = unit_vector k i).
  { intros Hsum. destruct (H _ Hsum (seq_NoDup _ _)) as [Hzero | (i & Hi & Hone)].
    - left. intros k Hk. apply Hzero. now apply Hseq.
    - right. exists i. split; [ now apply Hseq | intros k Hk; apply Hone; now apply Hseq ]. }
  clear Hseq. induction l as [ | j l IH ]; intros Hsum Hnodup; [ left; contradiction | ].
  inversion Hnodup as [ | ? ? Hj Hl ]; subst. simpl in Hsum.
  assert (Hpos : forall m, (0 <= total (map (fun k => Z.abs (a k)) m))%Z) by (induction m; simpl; lia).
  assert (Hall : forall m, (total (map (fun k => Z.abs (a k)) m) <= 0)%Z -> forall k, In k m -> a k = 0%Z).
  { induction m as [ | i m IHm ]; simpl; [ contradiction | ]. specialize (Hpos m).
    intros Hm k [<- | Hk]; [ lia | apply IHm; [ lia | exact Hk ] ]. }
  destruct (Z.eq_dec (a j) 0) as [Hzero | Hnonzero].
  - destruct IH as [ Hrest | (i & Hi & Hone) ]; [ lia | exact Hl | left | right ].
    + intros k [<- | Hk]; [ exact Hzero | now apply Hrest ].
    + exists i. split; [ now right | ]. intros k [<- | Hk]; [ | now apply Hone ].
      rewrite Hzero. unfold unit_vector. destruct (Nat.eqb_spec i j) as [-> | ]; [ contradiction | reflexivity ].
  - right. exists j. specialize (Hpos l). split; [ now left | ]. intros k [<- | Hk]; unfold unit_vector.
    + rewrite Nat.eqb_refl. lia.
    + rewrite (Hall l) by (lia || assumption). destruct (Nat.eqb_spec j k) as [-> | ]; [ contradiction | reflexivity ].
Qed.

Context {letter : Type} (T : letter -> nat -> nat -> Z).
Notation product := (product D T).
Notation run := (run D T).

(** The size of an inner sum is at most that of one factor, if the entries of the other one are at most 1. *)
Lemma inner_size : forall (a b : nat -> Z), (forall k, (k < D)%nat -> Z.abs (a k) <= 1)%Z ->
  (summed (fun k => Z.abs (a k * b k)) <= summed (fun k => Z.abs (b k)))%Z.
Proof. intros a b Ha. apply summed_le. intros k Hk. specialize (Ha k Hk). rewrite Z.abs_mul. nia. Qed.

Section Columns.

Hypothesis columns : forall a j, (j < D)%nat -> (summed (fun i => Z.abs (T a i j)) <= 1)%Z.

(** A letter never increases the sum of absolute values of a state. *)
Lemma columns_keep_size : forall w v, (summed (fun i => Z.abs (run v w i)) <= summed (fun i => Z.abs (v i)))%Z.
Proof.
  induction w as [ | a w IH ] using rev_ind; intros v; [ apply Z.le_refl | ].
  transitivity (summed (fun k => Z.abs (run v w k))); [ | apply IH ].
  rewrite run_app.
  transitivity (summed (fun i => summed (fun k => Z.abs (run v w k) * Z.abs (T a i k))%Z)).
  - apply summed_le. intros i _.
    change (Scan.run D T (run v w) [a] i) with (summed (fun k => T a i k * run v w k)%Z).
    etransitivity; [ apply abs_summed | ]. apply summed_le. intros k _. rewrite Z.abs_mul. lia.
  - rewrite summed_exchanged. apply summed_le. intros k Hk. rewrite summed_scaled. specialize (columns a k Hk). nia.
Qed.

Lemma columns_of_product : forall w j, (summed (fun i => Z.abs (product w i j)) <= 1)%Z.
Proof. intros w j. etransitivity; [ apply columns_keep_size | apply size_of_unit_vector ]. Qed.

Lemma entries_of_columns : forall w i j, (i < D)%nat -> (Z.abs (product w i j) <= 1)%Z.
Proof.
  intros w i j Hi. etransitivity; [ | apply (columns_of_product w j) ].
  apply (one_of_summed (fun i => Z.abs (product w i j))); [ exact Hi | intros; lia ].
Qed.

End Columns.

Section Rows.

Hypothesis rows : forall a i, (i < D)%nat -> (summed (fun j => Z.abs (T a i j)) <= 1)%Z.

Lemma rows_of_product : forall w i, (i < D)%nat -> (summed (fun j => Z.abs (product w i j)) <= 1)%Z.
Proof.
  induction w as [ | a w IH ] using rev_ind; intros i Hi.
  - etransitivity; [ | apply (size_of_unit_vector i) ]. apply summed_le. intros j _.
    unfold Scan.product, Scan.run, unit_vector. simpl. rewrite Nat.eqb_sym. lia.
  - transitivity (summed (fun j => summed (fun k => Z.abs (T a i k) * Z.abs (product w k j))%Z)).
    + apply summed_le. intros j _. unfold Scan.product at 1. rewrite run_app.
      change (Scan.run D T (run (unit_vector j) w) [a] i) with (summed (fun k => T a i k * product w k j)%Z).
      etransitivity; [ apply abs_summed | ]. apply summed_le. intros k _. rewrite Z.abs_mul. lia.
    + rewrite summed_exchanged. transitivity (summed (fun k => Z.abs (T a i k))); [ | now apply rows ].
      apply summed_le. intros k Hk. rewrite summed_scaled. specialize (IH k Hk). nia.
Qed.

Lemma entries_of_rows : forall w i j, (i < D)%nat -> (j < D)%nat -> (Z.abs (product w i j) <= 1)%Z.
Proof.
  intros w i j Hi Hj. etransitivity; [ | apply (rows_of_product w i Hi) ].
  apply (one_of_summed (fun j => Z.abs (product w i j))); [ exact Hj | intros; lia ].
Qed.

(** Numbers are moved, negated or dropped, never added. *)
Lemma rows_move_numbers : forall w v i, (i < D)%nat ->
  run v w i = 0%Z \/ exists j, (j < D)%nat /\ Z.abs (run v w i) = Z.abs (v j).
Proof.
  intros w v i Hi. rewrite run_is_product by exact Hi. unfold applied.
  destruct (at_most_one _ (rows_of_product w i Hi)) as [Hzero | (k & Hk & Hone)].
  - left. transitivity (summed (fun _ => 0 * 0)%Z); [ | rewrite summed_scaled; lia ].
    apply summed_ext. intros k Hk. now rewrite Hzero.
  - right. exists k. split; [ exact Hk | ].
    transitivity (Z.abs (product w i k * v k)).
    + f_equal. unfold Scan.summed.
      rewrite <- (total_single (seq 0 D) k (fun j => product w i j * v j)%Z (seq_NoDup _ _)) by (apply in_seq; lia).
      f_equal. apply map_ext_in. intros j Hj. apply in_seq in Hj. specialize (Hone j ltac:(lia)).
      unfold unit_vector in *. destruct (Nat.eqb k j); lia.
    + rewrite Z.abs_mul, (Hone k Hk). unfold unit_vector. rewrite Nat.eqb_refl. lia.
Qed.

End Rows.

End Sizes.

Section Exact.

Context (prec emax : Z) {prec_positive : Prec_gt_0 prec} {prec_below_emax : Prec_lt_emax prec emax}.
Notation represents := (represents prec emax).
Context (D : nat) {letter : Type} (table : letter -> nat -> nat -> float prec emax) (initial : nat -> float prec emax).
Context (T : letter -> nat -> nat -> Z) (v : nat -> Z) (e : Z).
Hypothesis table_means : forall a i j, (i < D)%nat -> (j < D)%nat -> represents (table a i j) (IZR (T a i j)).
Hypothesis initial_means : forall i, (i < D)%nat -> represents (initial i) (IZR (v i) * bpow radix2 e).

Lemma room_for_one : forall ks, (size ks <= 1)%Z -> has_room prec emax 0 ks.
Proof.
  intros ks Hks. assert (Hpos := prec_positive). assert (Hmax := prec_below_emax).
  unfold Prec_gt_0, Prec_lt_emax in Hpos, Hmax. split; [ unfold least_exponent; lia | split ].
  - assert (0 < 2 ^ prec)%Z by (apply Z.pow_pos_nonneg; lia). lia.
  - simpl bpow. rewrite Rmult_1_r. apply Rle_lt_trans with 1%R; [ now apply IZR_le | ].
    change 1%R with (bpow radix2 0). apply bpow_lt. lia.
Qed.

(** At most one 1 or -1 in every column: exact, if the absolute values of the initial state sum to at most 2^prec
    units, which a one-hot state does. *)
Theorem exact_state_by_columns :
  (forall a j, (j < D)%nat -> (summed D (fun i => Z.abs (T a i j)) <= 1)%Z) ->
  has_room prec emax e (map v (seq 0 D)) ->
  forall w h, computed_state prec emax D table initial w h ->
  forall i, (i < D)%nat -> represents (h i) (IZR (run D T v w i) * bpow radix2 e).
Proof.
  intros columns Hroom. apply exact_state; [ exact table_means | exact initial_means | | ].
  - intros w x i j Hi Hj. apply room_fits, room_for_one. rewrite size_is_summed.
    etransitivity; [ apply inner_size; intros k Hk; now apply entries_of_columns | now apply columns_of_product ].
  - intros w x i Hi. apply room_fits. apply room_for_part with (2 := Hroom). rewrite !size_is_summed.
    etransitivity; [ apply inner_size; intros k Hk; now apply entries_of_columns | now apply columns_keep_size ].
Qed.

(** At most one 1 or -1 in every row: exact from any finite initial state. *)
Theorem exact_state_by_rows :
  (forall a i, (i < D)%nat -> (summed D (fun j => Z.abs (T a i j)) <= 1)%Z) ->
  forall w h, computed_state prec emax D table initial w h ->
  forall i, (i < D)%nat -> represents (h i) (IZR (run D T v w i) * bpow radix2 e).
Proof.
  intros rows. apply exact_state; [ exact table_means | exact initial_means | | ].
  - intros w x i j Hi Hj. apply room_fits, room_for_one. rewrite size_is_summed.
    rewrite (summed_ext D _ (fun k => Z.abs (product D T w k j * product D T x i k))) by (intros; f_equal; ring).
    etransitivity; [ apply inner_size; intros k Hk; now apply entries_of_rows | now apply rows_of_product ].
  - intros w x i Hi.
    (* the only term that may not be zero is a number of the state, so of the initial state *)
    assert (Hone : exists k y, represents y (IZR k * bpow radix2 e) /\
      size (map (fun k => product D T x i k * run D T v w k)%Z (seq 0 D)) = Z.abs k /\
      forall j, In j (map (fun k => product D T x i k * run D T v w k)%Z (seq 0 D)) -> (j = 0 \/ Z.abs j = Z.abs k)%Z).
    { assert (Hempty : (forall k, (k < D)%nat -> product D T x i k * run D T v w k = 0)%Z ->
        exists k y, represents y (IZR k * bpow radix2 e) /\
        size (map (fun k => product D T x i k * run D T v w k)%Z (seq 0 D)) = Z.abs k /\
        forall j, In j (map (fun k => product D T x i k * run D T v w k)%Z (seq 0 D)) ->
        (j = 0 \/ Z.abs j = Z.abs k)%Z).
      { intros Hzero. exists 0%Z, (B754_zero false). split; [ now rewrite Rmult_0_l | split ].
        - rewrite size_is_summed. transitivity (summed D (fun _ => 0 * 0)%Z); [ | rewrite summed_scaled; reflexivity ].
          apply summed_ext. intros k Hk. now rewrite Hzero.
        - intros j Hj. left. apply in_map_iff in Hj as (k & <- & Hk). apply in_seq in Hk. apply Hzero. lia. }
      destruct (at_most_one D _ (rows_of_product D T rows x i Hi)) as [Hzero | (k & Hk & Hone)].
      - apply Hempty. intros k Hk. now rewrite Hzero.
      - destruct (rows_move_numbers D T rows w v k Hk) as [Hzero | (j & Hj & Habs)].
        + apply Hempty. intros n Hn. specialize (Hone n Hn). unfold unit_vector in Hone.
          destruct (Nat.eqb_spec k n) as [-> | _]; [ now rewrite Hzero, Z.mul_0_r | ].
          replace (product D T x i n) with 0%Z by lia. reflexivity.
        + exists (v j), (initial j). split; [ now apply initial_means | split ].
          * rewrite <- Habs, size_is_summed. unfold summed.
            rewrite <- (total_single (seq 0 D) k (fun n => Z.abs (run D T v w n)) (seq_NoDup _ _))
              by (apply in_seq; lia).
            f_equal. apply map_ext_in. intros n Hn. apply in_seq in Hn. rewrite Z.abs_mul, Hone by lia. reflexivity.
          * intros n Hn. apply in_map_iff in Hn as (m & <- & Hm). apply in_seq in Hm.
            specialize (Hone m ltac:(lia)). rewrite Z.abs_mul, Hone. unfold unit_vector in *.
            destruct (Nat.eqb_spec k m) as [Hkm | _];
              [ right; rewrite <- Hkm; lia | left; rewrite (proj1 (Z.abs_0_iff _) Hone); ring ]. }
    destruct Hone as (k & y & Hy & Hsize & Hterms). now apply one_number_fits with (x := y) (k := k).
Qed.

End Exact.
