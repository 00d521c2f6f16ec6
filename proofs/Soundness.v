(** The end-to-end theorem: what the checker accepts agrees with its specification, on every word of the domain,
    however it is computed. *)

From Coq Require Import ZArith NArith Reals List Lia Bool.
From Flocq Require Import Core BinarySingleNaN.
From Transductor Require Import Floats Sums Scan Invariant Patterns Certificate Lookup Checker ScanSound ReadoutSound.
Import ListNotations.

Lemma domain_closed_sound : forall s V, domain_closed s V = true ->
  forall d a, (a < V)%nat -> inside s (next (domain_transitions s) d a) = true -> inside s d = true.
Proof.
  intros s V H d a Ha Hinside. apply andb_prop in H as [Hlength H]. apply Nat.leb_le in Hlength.
  destruct (Nat.lt_ge_cases (N.to_nat d) (length (domain_transitions s))) as [Hd | Hd].
  - apply (all_below_spec _ _ H) in Hd. rewrite Nnat.N2Nat.id in Hd. apply orb_prop in Hd as [Hd | Hd]; [ exact Hd | ].
    apply (all_below_spec _ _ Hd) in Ha. now rewrite Hinside in Ha.
  - (* a state that does not exist leads nowhere inside *)
    exfalso. unfold next, inside, output in Hinside.
    rewrite (nth_overflow (domain_transitions s)) in Hinside by exact Hd.
    replace (nth a [] _) with (N.of_nat (length (domain_transitions s))) in Hinside by (now destruct a).
    rewrite Nnat.Nat2N.id, nth_overflow in Hinside by exact Hlength. discriminate.
Qed.

(** A head that remembers the state before: what it holds after a word. *)
Lemma remembered : forall D (T : nat -> nat -> nat -> Z) v w,
  let step := fun (h : (nat -> Z) * (nat -> Z)) a => (applied D (T a) (fst h), fst h) in
  head_after step (v, v) w = (run D T v w, run D T v (removelast w)).
Proof.
  intros D T v w step. induction w as [ | a w IH ] using rev_ind; [ reflexivity | ].
  unfold head_after in *. rewrite fold_left_app, IH, removelast_last, run_app. reflexivity.
Qed.

(** The rows of the readout, as the checker makes them, are those of the checkpoint. *)
Lemma rows_of_readout : forall {A B C E} (F : A -> C) (G : B -> E) (H : C -> Z) (l : list A) (k : list B) c x y,
  nth_error l c = Some x -> nth_error k c = Some y ->
  nth_error (map (fun p => (fst p, snd p, H (fst p))) (combine (map F l) (map G k))) c = Some (F x, G y, H (F x)).
Proof.
  intros A B C E F G H l k c. revert l k. induction c as [ | c IH ]; intros [ | a l ] [ | b k ] x y Hx Hy;
    try discriminate; simpl in *; [ | now apply IH ].
  injection Hx as ->. injection Hy as ->. reflexivity.
Qed.

Theorem check_sound : forall m s e, check m s e = true -> agrees m s.
Proof.
  intros m s e H. unfold check in H. cbv zeta in H.
  set (D := dimension m) in *. set (O := shown_dimension m) in *.
  set (f := head_format m) in *. set (g := readout_format m) in *.
  set (es := state_unit e) in *. set (ew := weight_unit e) in *.
  fold (matrices f (table m)) in H. fold (start_state f (initial m) es) in H.
  set (rows := map _ (combine _ _)) in H.
  set (labelled := fun n read => label_shown g O es ew rows (tree_of read) read (output (outputs s) (node_machine n)))
    in H.
  set (on_edges := fun n before => if lookback m then _ else true) in H.
  apply andb_prop in H as [H Hnodes]. apply andb_prop in H as [H Hfirst]. apply andb_prop in H as [H Hdomain].
  apply andb_prop in H as [H Hscan]. apply andb_prop in H as [H Hunit]. apply andb_prop in H as [H Hstate_unit].
  apply andb_prop in H as [H Hdimension]. apply andb_prop in H as [H Hbias]. apply andb_prop in H as [H Hweight].
  apply andb_prop in H as [H Hclasses]. apply andb_prop in H as [Htable Hinitial].
  apply Z.leb_le in Hunit. apply Z.leb_le in Hstate_unit. apply Z.ltb_lt in Hdimension. apply Nat.eqb_eq in Hclasses.
  set (TT := T f (table m)). set (vv := v f (initial m) es).
  (* the invariant: head, machine and domain are at a node, whose label is shown *)
  pose (at_node := fun (h : (nat -> Z) * (nat -> Z)) (p d : N) => exists n, In n (nodes e) /\
    (forall i, (i < D)%nat -> fst h i = nth i (node_state n) 0%Z) /\ p = node_machine n /\ d = node_domain n /\
    exists read, labelled n read = true /\ forall k, (k < O)%nat -> shown m (fst h) (snd h) k = nth k read 0%Z).
  pose (step := fun (h : (nat -> Z) * (nat -> Z)) a => (applied D (TT a) (fst h), fst h)).
  assert (Hedge : forall st h p d targets a,
    edge_kept s (matrices f (table m)) (tree_of (nodes e)) on_edges st (tree_of st) p d targets a = true ->
    (forall i, (i < D)%nat -> fst h i = nth i st 0%Z) -> inside s (next (domain_transitions s) d a) = true ->
    at_node (step h a) (next (transitions s) p a) (next (domain_transitions s) d a)).
  { intros st h p d targets a Hkept Hst Hinside. unfold edge_kept in Hkept. rewrite Hinside, lookup_tree_of in Hkept.
    destruct (nth_error (nodes e) _) as [n | ] eqn:Hn; [ | discriminate ].
    apply andb_prop in Hkept as [Hkept Hlabel]. apply andb_prop in Hkept as [Hkept Hsame].
    apply andb_prop in Hkept as [Hmachine Hd].
    apply N.eqb_eq in Hmachine. apply N.eqb_eq in Hd. apply same_equal in Hsame. apply nth_error_In in Hn.
    assert (Hnow : forall i, (i < D)%nat -> fst (step h a) i = nth i (node_state n) 0%Z).
    { intros i Hi. rewrite <- Hsame, (stepped_is_applied f D (table m) Htable). cbn [fst step]. unfold applied.
      apply summed_ext. intros k Hk. now rewrite Hst. }
    exists n. split; [ exact Hn | split; [ exact Hnow | split; [ now symmetry | split; [ now symmetry | ] ] ] ].
    unfold on_edges in Hlabel. unfold shown, O at 1, shown_dimension. fold D. destruct (lookback m) eqn:Hback.
    - (* the label was looked at on the edge *)
      apply andb_prop in Hlabel as [Hlength Hlabel]. apply Nat.eqb_eq in Hlength.
      exists (node_state n ++ st). split; [ exact Hlabel | ]. intros k Hk.
      destruct (Nat.ltb_spec k D) as [Hlow | Hhigh].
      + rewrite app_nth1 by lia. now apply Hnow.
      + rewrite app_nth2, Hlength by lia. cbn [snd step]. apply Hst. lia.
    - (* the label was looked at on the node *)
      apply (proj1 (forallb_forall _ _) Hnodes) in Hn. apply andb_prop in Hn as [_ Hn].
      exists (node_state n). split; [ exact Hn | ]. intros k Hk. rewrite (proj2 (Nat.ltb_lt k D) Hk). now apply Hnow. }
  intros w Hnonempty Hletters Hin logits (now_ & before & Hnow & Hbefore & Hlogits) Hlabel.
  assert (Hreached : at_node (head_after step (vv, vv) w)
    (machine_after (next (transitions s)) (start s) w) (domain_after (next (domain_transitions s)) (domain_start s) w)).
  { apply invariant_after_every_word with (letters := fun a => (a < letters m)%nat) (inside := inside s);
      try assumption.
    - apply closed_by_steps. now apply domain_closed_sound.
    - intros a Ha Hinside. apply (all_below_spec _ _ Hfirst) in Ha.
      eapply Hedge; [ exact Ha | reflexivity | exact Hinside ].
    - intros h' p d a Ha (n & Hn & Hst & -> & -> & _) Hinside.
      apply (proj1 (forallb_forall _ _) Hnodes) in Hn. apply andb_prop in Hn as [Hn _].
      apply (all_below_spec _ _ Hn) in Ha. eapply Hedge; [ exact Ha | exact Hst | exact Hinside ]. }
  unfold step in Hreached. rewrite remembered in Hreached.
  destruct Hreached as (n & _ & _ & Hmachine & _ & read & Hshown & Hread). cbn [fst snd] in Hread.
  unfold label_after in *. rewrite Hmachine in *. set (label := output (outputs s) (node_machine n)) in *.
  unfold labelled, label_shown, class_row in Hshown. fold label in Hshown.
  rewrite (proj2 (Z.ltb_ge label 0) Hlabel) in Hshown. cbv zeta in Hshown.
  apply andb_prop in Hshown as [Hshown Hdecides]. apply andb_prop in Hshown as [Hsize Hranges].
  (* what the readout reads stands for the integers that the checker has looked at *)
  assert (Hmeans : forall k, (k < O)%nat ->
    represents _ _ (shown m now_ before k) (IZR (nth k read 0%Z) * bpow radix2 es)).
  { assert (Hexact : forall x h, computed_state _ _ D (table_entry m) (initial_entry m) x h ->
      forall k, (k < D)%nat -> represents _ _ (h k) (IZR (run D TT vv x k) * bpow radix2 es)).
    { intros x h Hx. now apply (scan_accepted f D (table m) (initial m) es Htable Hinitial eq_refl _ Hscan). }
    intros k Hk. rewrite <- Hread by exact Hk. unfold shown. fold D. destruct (Nat.ltb_spec k D) as [Hlow | Hhigh].
    - now apply Hexact.
    - apply Hexact; [ exact Hbefore | ]. unfold O, shown_dimension in Hk. fold D in Hk. destruct (lookback m); lia. }
  assert (Hcount : length rows = classes m).
  { unfold rows. rewrite map_length, combine_length, !map_length, Hclasses. unfold classes. lia. }
  pose (class := fun c => (integers g ew (nth c (weight m) []), integer_of g (es + ew) (nth c (bias m) 0%Z),
    underflow_units g O es ew (row_size (integers g ew (nth c (weight m) []))))).
  assert (Hrow : forall c, (c < classes m)%nat -> nth_error rows c = Some (class c)).
  { intros c Hc. unfold classes in Hc. apply (rows_of_readout (integers g ew) (integer_of g (es + ew))
      (fun r => underflow_units g O es ew (row_size r))); apply nth_error_nth'; lia. }
  set (computed := map _ rows) in *.
  assert (Hcomputed : forall c, (c < classes m)%nat ->
    nth_error computed c = Some (logit O (tree_of read) (class c), snd (class c))).
  { intros c Hc. unfold computed. rewrite nth_error_map, Hrow by exact Hc. reflexivity. }
  assert (Hin_range : forall c, (c < classes m)%nat ->
    in_range_units g O (es + ew) (logit O (tree_of read) (class c)) (snd (class c)) = true).
  { intros c Hc. apply (proj1 (forallb_forall _ _) Hranges _ (nth_error_In _ _ (Hcomputed c Hc))). }
  assert (Hweights : forall c, well_formed g ew O (nth c (weight m) []) = true) by (intros c; now apply forallb_nth).
  assert (Hbiases : forall c, (c < classes m)%nat -> is_multiple g (es + ew) (nth c (bias m) 0%Z) = true).
  { intros c Hc. apply (proj1 (forallb_forall _ _) Hbias). now apply nth_In. }
  assert (Hlength : length computed = classes m) by (unfold computed; now rewrite map_length).
  unfold shows. destruct (Nat.eqb_spec (classes m) 1) as [Hone | Hseveral].
  - (* one logit, compared with zero *)
    assert (Hfirst_class : (0 < classes m)%nat) by lia.
    assert (Honly := Hcomputed 0%nat Hfirst_class). rewrite Hone in Hlength.
    destruct computed as [ | only [ | ] ]; try discriminate. injection Honly as ->. cbn [fst] in Hdecides.
    destruct (threshold_accepted f g O es ew read (shown m now_ before) _ _ (logits 0%nat) Hmeans Hsize Hstate_unit
      Hunit
      Hdimension (Hweights 0%nat) (Hbiases _ Hfirst_class) (Hin_range _ Hfirst_class) (Hlogits _ Hfirst_class)) as
        [Hup Hdown].
    apply orb_prop in Hdecides as [Hd | Hd]; apply andb_prop in Hd as [Hvalue Hd]; apply Z.eqb_eq in Hvalue;
      rewrite Hvalue.
    + left. split; [ reflexivity | now apply Hup ].
    + right. split; [ reflexivity | now apply Hdown ].
  - assert (Hright : (Z.to_nat label < classes m)%nat /\ all_below (classes m) (fun j => (j =? Z.to_nat label)%nat ||
      decides (2 ^ precision g - (Z.of_nat O + 2)) (fst (nth (Z.to_nat label) computed (0, 0, 0, 0)%Z))
        (fst (nth j computed (0, 0, 0, 0)%Z))) = true).
    { rewrite Hcount in Hdecides. destruct computed as [ | x [ | y l ] ];
        [ | exfalso; apply Hseveral; rewrite <- Hlength; reflexivity | ];
        apply andb_prop in Hdecides as [Hr Hd]; apply Nat.ltb_lt in Hr; now split. }
    clear Hdecides. destruct Hright as [Hright Hdecides]. split; [ exact Hright | ]. intros j Hj Hne.
    apply (all_below_spec _ _ Hdecides) in Hj as Hdecision. apply orb_prop in Hdecision as [Hequal | Hdecision];
      [ apply Nat.eqb_eq in Hequal; contradiction | ].
    rewrite (nth_error_nth _ _ _ (Hcomputed _ Hright)), (nth_error_nth _ _ _ (Hcomputed _ Hj)) in Hdecision.
    cbn [fst] in Hdecision.
    exact (decision_accepted f g O es ew read (shown m now_ before) _ _ _ _ _ _ Hmeans Hsize Hstate_unit Hunit
      Hdimension (Hweights _) (Hbiases _ Hright) (Hweights _) (Hbiases _ Hj) (Hin_range _ Hright) (Hin_range _ Hj)
      Hdecision (Hlogits _ Hright) (Hlogits _ Hj)).
Qed.
