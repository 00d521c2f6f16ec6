(** Data structures of the checker: lists as search trees, so that a look-up is quick, and sparse rows of integers. *)

From Coq Require Import ZArith NArith List Lia FMapPositive Bool.
From Transductor Require Import Sums Scan Certificate.
Import ListNotations.

(** Trees. *)

Definition tree (A : Type) : Type := PositiveMap.t A.

Definition planted {A} (state : tree A * positive) (x : A) : tree A * positive :=
  (PositiveMap.add (snd state) x (fst state), Pos.succ (snd state)).
Definition tree_of {A} (l : list A) : tree A := fst (fold_left planted l (PositiveMap.empty A, 1%positive)).
Definition lookup {A} (t : tree A) (i : N) : option A := PositiveMap.find (N.succ_pos i) t.

Lemma planted_find : forall A (l : list A) t p q,
  PositiveMap.find q (fst (fold_left planted l (t, p))) =
  if (q <? p)%positive then PositiveMap.find q t
  else match nth_error l (Pos.to_nat q - Pos.to_nat p) with Some x => Some x | None => PositiveMap.find q t end.
Proof.
  induction l as [ | x l IH ]; intros t p q.
  - simpl. destruct (q <? p)%positive; [ reflexivity | ]. now destruct (Pos.to_nat q - Pos.to_nat p)%nat.
  - cbn [fold_left]. unfold planted at 2. cbn [fst snd]. rewrite IH. clear IH.
    destruct (Pos.ltb_spec q p) as [Hqp | Hqp].
    + assert (H : (q < Pos.succ p)%positive) by lia. apply Pos.ltb_lt in H. rewrite H. apply PositiveMap.gso. lia.
    + destruct (Pos.eq_dec q p) as [-> | Hne].
      * assert (H : (p < Pos.succ p)%positive) by lia. apply Pos.ltb_lt in H. rewrite H, Nat.sub_diag.
        apply PositiveMap.gss.
      * assert (H : ~ (q < Pos.succ p)%positive) by lia. rewrite <- Pos.ltb_lt in H. apply not_true_is_false in H.
        rewrite H.
        replace (Pos.to_nat q - Pos.to_nat p)%nat with (S (Pos.to_nat q - Pos.to_nat (Pos.succ p))) by lia.
        cbn [nth_error]. rewrite PositiveMap.gso by exact Hne. reflexivity.
Qed.

Lemma lookup_tree_of : forall A (l : list A) i, lookup (tree_of l) i = nth_error l (N.to_nat i).
Proof.
  intros A l i. unfold lookup, tree_of. rewrite planted_find.
  assert (H : (N.succ_pos i <? 1)%positive = false) by (apply Pos.ltb_ge; lia). rewrite H, PositiveMap.gempty.
  replace (Pos.to_nat (N.succ_pos i) - Pos.to_nat 1)%nat with (N.to_nat i).
  - now destruct (nth_error l (N.to_nat i)).
  - destruct i as [ | p ]; [ reflexivity | ]. simpl N.succ_pos. simpl N.to_nat. lia.
Qed.

Definition component (t : tree Z) (i : N) : Z := match lookup t i with Some k => k | None => 0%Z end.

Lemma component_tree_of : forall l i, component (tree_of l) i = nth (N.to_nat i) l 0%Z.
Proof.
  intros l i. unfold component. rewrite lookup_tree_of. apply (nth_default_eq (N.to_nat i) l 0%Z).
Qed.

(** Sparse rows of integers. *)

Definition integer_row : Type := list (N * Z).

Definition integer_at (r : integer_row) (j : N) : Z :=
  match find (fun p => N.eqb (fst p) j) r with Some p => snd p | None => 0%Z end.

Lemma integer_at_cons : forall c k r j, integer_at ((c, k) :: r) j = if N.eqb c j then k else integer_at r j.
Proof. intros c k r j. unfold integer_at. simpl. now destruct (N.eqb c j). Qed.

(** Columns ascend from [least] and stay below [most]. *)
Fixpoint ascending {A} (least most : N) (r : list (N * A)) : bool :=
  match r with
  | [] => true
  | (c, _) :: rest => (least <=? c)%N && (c <? most)%N && ascending (c + 1) most rest
  end.

Lemma integer_below : forall r least most j, ascending least most r = true -> (j < least)%N -> integer_at r j = 0%Z.
Proof.
  induction r as [ | [c k] r IH ]; intros least most j Hr Hj; [ reflexivity | ].
  simpl in Hr. apply andb_prop in Hr as [Hr Hrest]. apply andb_prop in Hr as [Hc _]. apply N.leb_le in Hc.
  rewrite integer_at_cons. destruct (N.eqb_spec c j); [ lia | ]. apply (IH (c + 1)%N most); [ exact Hrest | lia ].
Qed.

(** A sum over a row is a sum over all columns, if absent entries contribute nothing. *)
Definition row_sum (g : N -> Z -> Z) (r : integer_row) : Z := total (map (fun p => g (fst p) (snd p)) r).

Lemma row_sum_is_summed : forall (g : N -> Z -> Z) D r least, (forall j, g j 0 = 0)%Z ->
  ascending least (N.of_nat D) r = true ->
  row_sum g r = summed D (fun j => g (N.of_nat j) (integer_at r (N.of_nat j))).
Proof.
  intros g D r least Hzero. revert least. induction r as [ | [c k] r IH ]; intros least Hr.
  - unfold row_sum, summed. simpl. generalize (seq 0 D) as l. induction l as [ | j l IHl ]; [ reflexivity | ].
    simpl. rewrite <- IHl. unfold integer_at; simpl. now rewrite Hzero.
  - simpl in Hr. apply andb_prop in Hr as [Hr Hrest]. apply andb_prop in Hr as [_ Hc]. apply N.ltb_lt in Hc.
    change (row_sum g ((c, k) :: r)) with (g c k + row_sum g r)%Z. rewrite (IH _ Hrest).
    transitivity (summed D (fun j => unit_vector j (N.to_nat c) * g c k
      + g (N.of_nat j) (integer_at r (N.of_nat j)))%Z).
    + unfold summed. rewrite total_map_add. f_equal.
      rewrite (total_single (seq 0 D) (N.to_nat c) (fun _ => g c k)); [ reflexivity | apply seq_NoDup | apply in_seq;
        lia ].
    + apply summed_ext. intros j Hj. rewrite integer_at_cons. unfold unit_vector.
      destruct (N.eqb_spec c (N.of_nat j)) as [-> | Hne].
      * rewrite Nnat.Nat2N.id, Nat.eqb_refl, (integer_below r _ _ _ Hrest), Hzero by lia. ring.
      * destruct (Nat.eqb_spec (N.to_nat c) j); [ lia | ring ].
Qed.

Definition dot (r : integer_row) (t : tree Z) : Z := row_sum (fun c k => k * component t c)%Z r.
Definition absolute_dot (r : integer_row) (t : tree Z) : Z := row_sum (fun c k => Z.abs (k * component t c))%Z r.
Definition row_size (r : integer_row) : Z := row_sum (fun _ k => Z.abs k) r.

(** Equality of lists, and a test of every index below a number. *)
Fixpoint same (l m : list Z) : bool :=
  match l, m with
  | [], [] => true
  | x :: l, y :: m => Z.eqb x y && same l m
  | _, _ => false
  end.

Lemma same_equal : forall l m, same l m = true -> l = m.
Proof.
  induction l as [ | x l IH ]; destruct m as [ | y m ]; intros H; try discriminate; [ reflexivity | ].
  apply andb_prop in H as [Hx Hl]. apply Z.eqb_eq in Hx. f_equal; [ exact Hx | now apply IH ].
Qed.

Definition all_below (n : nat) (test : nat -> bool) : bool := forallb test (seq 0 n).

Lemma all_below_spec : forall n test, all_below n test = true -> forall i, (i < n)%nat -> test i = true.
Proof. intros n test H i Hi. apply (proj1 (forallb_forall _ _) H). apply in_seq. lia. Qed.
