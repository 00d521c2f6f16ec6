(** The scan of a head: products of the letters' matrices, associated in any order, applied to the initial state.

    First what a scan means, over the integers; then what it computes, in floats; then: if every inner sum has room,
    what is computed is what is meant. *)

From Coq Require Import ZArith Reals List Lia.
From Flocq Require Import Core BinarySingleNaN.
From Transductor Require Import Floats Sums.
Import ListNotations.

Section Integers.

Context (D : nat).

(** Vectors and matrices are functions of indices below D; what they say elsewhere never matters. *)
Definition summed (f : nat -> Z) : Z := total (map f (seq 0 D)).
Definition applied (M : nat -> nat -> Z) (v : nat -> Z) : nat -> Z := fun i => summed (fun k => M i k * v k)%Z.
Definition unit_vector (j : nat) : nat -> Z := fun i => if Nat.eqb i j then 1%Z else 0%Z.

Context {letter : Type} (T : letter -> nat -> nat -> Z).

(** The state after a word: one matrix after the other. *)
Definition run (v : nat -> Z) (w : list letter) : nat -> Z := fold_left (fun h a => applied (T a) h) w v.

(** The matrix of a word, whose columns are what becomes of the unit vectors. *)
Definition product (w : list letter) : nat -> nat -> Z := fun i j => run (unit_vector j) w i.

Lemma summed_ext : forall f g, (forall k, (k < D)%nat -> f k = g k) -> summed f = summed g.
Proof.
  intros f g H. unfold summed. f_equal. apply map_ext_in. intros k Hk. apply in_seq in Hk. apply H. lia.
Qed.

Lemma total_map_add : forall (l : list nat) f g,
  total (map (fun k => f k + g k)%Z l) = (total (map f l) + total (map g l))%Z.
Proof. induction l as [ | k l IH ]; intros f g; simpl; [ reflexivity | rewrite IH; lia ]. Qed.

Lemma total_map_scaled : forall (l : list nat) f c, total (map (fun k => c * f k)%Z l) = (c * total (map f l))%Z.
Proof. induction l as [ | k l IH ]; intros f c; simpl; [ lia | rewrite IH; lia ]. Qed.

Lemma summed_scaled : forall f c, summed (fun k => c * f k)%Z = (c * summed f)%Z.
Proof. intros. apply total_map_scaled. Qed.

Lemma total_exchanged : forall (l m : list nat) f,
  total (map (fun i => total (map (fun j => f i j) m)) l) = total (map (fun j => total (map (fun i => f i j) l)) m).
Proof.
  induction l as [ | i l IH ]; intros m f; simpl.
  - induction m as [ | j m IHm ]; simpl; [ reflexivity | rewrite <- IHm; reflexivity ].
  - rewrite IH, <- total_map_add. reflexivity.
Qed.

Lemma summed_exchanged : forall f, summed (fun i => summed (fun j => f i j)) = summed (fun j => summed (fun i => f i
  j)).
Proof. intros. apply total_exchanged. Qed.

Lemma total_single : forall (l : list nat) i f, NoDup l -> In i l ->
  total (map (fun j => unit_vector j i * f j)%Z l) = f i.
Proof.
  assert (Haway : forall (l : list nat) i f, ~ In i l -> total (map (fun j => unit_vector j i * f j)%Z l) = 0%Z).
  { induction l as [ | k l IH ]; intros i f Hin; simpl; [ reflexivity | ].
    rewrite IH by (intros H; apply Hin; now right). unfold unit_vector.
    destruct (Nat.eqb_spec i k) as [-> | ]; [ exfalso; apply Hin; now left | lia ]. }
  induction l as [ | k l IH ]; intros i f Hnodup Hin; [ contradiction | ].
  inversion Hnodup as [ | ? ? Hk Hl ]; subst. simpl. destruct (Nat.eq_dec k i) as [-> | Hne].
  - rewrite Haway by exact Hk. unfold unit_vector. rewrite Nat.eqb_refl. lia.
  - destruct Hin as [ | Hin ]; [ contradiction | ]. rewrite IH by assumption. unfold unit_vector.
    destruct (Nat.eqb_spec i k); [ congruence | lia ].
Qed.

Lemma run_app : forall v w x, run v (w ++ x) = run (run v w) x.
Proof. intros. unfold run. apply fold_left_app. Qed.

(** Running is linear: the matrix of a word, applied to a vector, is what running makes of it. *)
Lemma run_is_product : forall w v i, (i < D)%nat -> run v w i = applied (product w) v i.
Proof.
  unfold applied, product. induction w as [ | a w IH ] using rev_ind; intros v i Hi.
  - simpl. unfold summed. rewrite total_single; [ reflexivity | apply seq_NoDup | apply in_seq; lia ].
  - rewrite run_app. change (run (run v w) [a] i) with (summed (fun k => T a i k * run v w k)%Z).
    transitivity (summed (fun k => summed (fun j => T a i k * (run (unit_vector j) w k * v j)))%Z).
    { apply summed_ext. intros k Hk. rewrite summed_scaled, <- IH by exact Hk. reflexivity. }
    rewrite summed_exchanged. apply summed_ext. intros j Hj. rewrite run_app.
    change (run (run (unit_vector j) w) [a] i) with (summed (fun k => T a i k * run (unit_vector j) w k)%Z).
    rewrite Z.mul_comm, <- summed_scaled. apply summed_ext. intros k Hk. ring.
Qed.

Lemma product_app : forall w x i j, (i < D)%nat ->
  product (w ++ x) i j = summed (fun k => product x i k * product w k j)%Z.
Proof. intros w x i j Hi. unfold product at 1. rewrite run_app. now apply run_is_product. Qed.

End Integers.

Section Computed.

Context (prec emax : Z) {prec_positive : Prec_gt_0 prec} {prec_below_emax : Prec_lt_emax prec emax}.
Notation number := (float prec emax).
Notation represents := (represents prec emax).

Context (D : nat) {letter : Type} (table : letter -> nat -> nat -> number) (initial : nat -> number).

(** The terms of the inner product of two vectors. *)
Definition inner (x y : nat -> number) : list (term prec emax) := map (fun k => Product (x k) (y k)) (seq 0 D).

(** [computed_matrix w M]: some computation gives the matrix M to the word w.  A derivation is a tree of products:
    how a scan is associated.  Entries may differ in how they are summed.  Identity matrices may pad it. *)
Inductive computed_matrix : list letter -> (nat -> nat -> number) -> Prop :=
  | computed_identity : forall M,
      (forall i j, (i < D)%nat -> (j < D)%nat -> represents (M i j) (IZR (unit_vector j i))) -> computed_matrix [] M
  | computed_letter : forall a M,
      (forall i j, (i < D)%nat -> (j < D)%nat -> M i j = table a i j) -> computed_matrix [a] M
  | computed_product : forall w x earlier later M,
      computed_matrix w earlier -> computed_matrix x later ->
      (forall i j, (i < D)%nat -> (j < D)%nat -> sums prec emax (inner (later i) (fun k => earlier k j)) (M i j)) ->
      computed_matrix (w ++ x) M.

(** [computed_state w h]: some computation gives the state h to the word w: matrices of parts of the word, each
    applied to the state before. *)
Inductive computed_state : list letter -> (nat -> number) -> Prop :=
  | computed_start : forall h, (forall i, (i < D)%nat -> h i = initial i) -> computed_state [] h
  | computed_step : forall w x h M h',
      computed_state w h -> computed_matrix x M ->
      (forall i, (i < D)%nat -> sums prec emax (inner (M i) h) (h' i)) ->
      computed_state (w ++ x) h'.

(** Premises: the table holds integers, and the initial state integers in units of 2^e. *)
Context (T : letter -> nat -> nat -> Z) (v : nat -> Z) (e : Z).
Hypothesis table_means : forall a i j, (i < D)%nat -> (j < D)%nat -> represents (table a i j) (IZR (T a i j)).
Hypothesis initial_means : forall i, (i < D)%nat -> represents (initial i) (IZR (v i) * bpow radix2 e).

(** And every inner sum, of any two parts of a word, has room. *)
Hypothesis matrices_fit : forall w x i j, (i < D)%nat -> (j < D)%nat ->
  fits prec emax 0 (map (fun k => product D T x i k * product D T w k j)%Z (seq 0 D)).
Hypothesis states_fit : forall w x i, (i < D)%nat ->
  fits prec emax e (map (fun k => product D T x i k * run D T v w k)%Z (seq 0 D)).

Lemma inner_means : forall (x y : nat -> number) (a b : nat -> Z) e,
  (forall k, (k < D)%nat -> represents (x k) (IZR (a k))) ->
  (forall k, (k < D)%nat -> represents (y k) (IZR (b k) * bpow radix2 e)) ->
  Forall2 (means prec emax e) (inner x y) (map (fun k => a k * b k)%Z (seq 0 D)).
Proof.
  intros x y a b e' Hx Hy. unfold inner.
  assert (Hbelow : forall k, In k (seq 0 D) -> (k < D)%nat) by (intros k Hk; apply in_seq in Hk; lia).
  revert Hbelow. generalize (seq 0 D) as l. induction l as [ | k l IH ]; intros Hbelow; simpl; constructor.
  - assert (Hk : (k < D)%nat) by (apply Hbelow; now left).
    econstructor; [ exact (Hx k Hk) | exact (Hy k Hk) | ]. rewrite mult_IZR. ring.
  - apply IH. intros j Hj. apply Hbelow. now right.
Qed.

(** Theorem (a), first half: a product of matrices, associated and summed in any order, is exact. *)
Theorem exact_product : forall w M, computed_matrix w M ->
  forall i j, (i < D)%nat -> (j < D)%nat -> represents (M i j) (IZR (product D T w i j)).
Proof.
  intros w M H. induction H as [ M HM | a M HM | w x earlier later M _ IHw _ IHx HM ]; intros i j Hi Hj.
  - now apply HM.
  - rewrite HM by assumption. replace (product D T [a] i j) with (T a i j); [ now apply table_means | ].
    unfold product, run; simpl. unfold applied, summed.
    rewrite <- (total_single (seq 0 D) j (fun k => T a i k) (seq_NoDup _ _)) at 1 by (apply in_seq; lia).
    f_equal. apply map_ext_in. intros k _. unfold unit_vector. rewrite Nat.eqb_sym. ring.
  - rewrite product_app by exact Hi. rewrite <- (Rmult_1_r (IZR _)). change 1%R with (bpow radix2 0).
    eapply exact_sum_that_fits; [ now apply HM | | now apply matrices_fit ].
    apply (inner_means (later i) (fun k => earlier k j)).
    + intros k Hk. now apply IHx.
    + intros k Hk. simpl bpow. rewrite Rmult_1_r. now apply IHw.
Qed.

(** Theorem (a), second half: so is every state. *)
Theorem exact_state : forall w h, computed_state w h ->
  forall i, (i < D)%nat -> represents (h i) (IZR (run D T v w i) * bpow radix2 e).
Proof.
  intros w h H. induction H as [ h Hh | w x h M h' _ IH HM Hh' ]; intros i Hi.
  - rewrite Hh by exact Hi. now apply initial_means.
  - rewrite run_app, run_is_product by exact Hi.
    eapply exact_sum_that_fits; [ now apply Hh' | | now apply states_fit ].
    apply inner_means; [ | exact IH ]. intros k Hk. now apply (exact_product _ _ HM).
Qed.

End Computed.
