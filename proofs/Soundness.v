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
    exfalso. unfold next, inside, output in Hinside. rewrite (nth_overflow (domain_transitions s)) in Hinside by exact Hd.
    replace (nth a [] _) with (N.of_nat (length (domain_transitions s))) in Hinside by (now destruct a).
    rewrite Nnat.Nat2N.id, nth_overflow in Hinside by exact Hlength. discriminate.
Qed.

Theorem check_sound : forall m s e, check m s e = true -> agrees m s.
Proof.
  intros m s e H. unfold check in H. cbv zeta in H.
  set (D := dimension m) in *. set (f := head_format m) in *. set (g := readout_format m) in *.
  set (es := state_unit e) in *. set (ew := weight_unit e) in *.
  fold (matrices f (table m)) in H. fold (start_state f (initial m) es) in H.
  set (rows := map _ (combine _ _)) in H.
  apply andb_prop in H as [H Hnodes]. apply andb_prop in H as [H Hfirst]. apply andb_prop in H as [H Hdomain].
  apply andb_prop in H as [H Hscan]. apply andb_prop in H as [H Hunit]. apply andb_prop in H as [H Hstate_unit].
  apply andb_prop in H as [H Hdimension]. apply andb_prop in H as [H Hbias]. apply andb_prop in H as [H Hweight].
  apply andb_prop in H as [H Hclasses]. apply andb_prop in H as [Htable Hinitial].
  apply Z.leb_le in Hunit. apply Z.leb_le in Hstate_unit. apply Z.ltb_lt in Hdimension. apply Nat.eqb_eq in Hclasses.
  set (TT := T f (table m)). set (vv := v f (initial m) es).
  (* the invariant: head, machine and domain are at a node *)
  pose (at_node := fun (h : nat -> Z) (p d : N) => exists n, In n (nodes e) /\
    (forall i, (i < D)%nat -> h i = nth i (node_state n) 0%Z) /\ p = node_machine n /\ d = node_domain n).
  assert (Hedge : forall st h p d targets a,
    edge_kept m s (matrices f (table m)) (tree_of (nodes e)) (tree_of st) p d targets a = true ->
    (forall i, (i < D)%nat -> h i = nth i st 0%Z) -> inside s (next (domain_transitions s) d a) = true ->
    at_node (applied D (TT a) h) (next (transitions s) p a) (next (domain_transitions s) d a)).
  { intros st h p d targets a Hkept Hst Hinside. unfold edge_kept in Hkept. rewrite Hinside, lookup_tree_of in Hkept.
    destruct (nth_error (nodes e) _) as [n | ] eqn:Hn; [ | discriminate ].
    apply andb_prop in Hkept as [Hkept Hsame]. apply andb_prop in Hkept as [Hmachine Hd].
    apply N.eqb_eq in Hmachine. apply N.eqb_eq in Hd. apply same_equal in Hsame.
    exists n. split; [ now apply nth_error_In in Hn | split; [ | now split ] ].
    intros i Hi. rewrite <- Hsame, (stepped_is_applied f D (table m) Htable). unfold applied. apply summed_ext.
    intros k Hk. now rewrite Hst. }
  intros w Hnonempty Hletters Hin logits (h & Hh & Hlogits) Hlabel.
  assert (Hreached : at_node (head_after (fun h a => applied D (TT a) h) vv w)
    (machine_after (next (transitions s)) (start s) w) (domain_after (next (domain_transitions s)) (domain_start s) w)).
  { apply invariant_after_every_word with (letters := fun a => (a < letters m)%nat) (inside := inside s); try assumption.
    - apply closed_by_steps. now apply domain_closed_sound.
    - intros a Ha Hinside. apply (all_below_spec _ _ Hfirst) in Ha. eapply Hedge; [ exact Ha | reflexivity | exact Hinside ].
    - intros h' p d a Ha (n & Hn & Hst & -> & ->) Hinside.
      apply (proj1 (forallb_forall _ _) Hnodes) in Hn. apply andb_prop in Hn as [Hn _].
      apply (all_below_spec _ _ Hn) in Ha. eapply Hedge; [ exact Ha | exact Hst | exact Hinside ]. }
  destruct Hreached as (n & Hn & Hst & Hmachine & _).
  change (head_after (fun h a => applied D (TT a) h) vv w) with (run D TT vv w) in Hst.
  apply (proj1 (forallb_forall _ _) Hnodes) in Hn. apply andb_prop in Hn as [_ Hshown].
  unfold label_after in *. rewrite Hmachine in *. set (label := output (outputs s) (node_machine n)) in *.
  unfold label_shown, class_row in Hshown. rewrite (proj2 (Z.ltb_ge label 0) Hlabel) in Hshown. cbv zeta in Hshown.
  apply andb_prop in Hshown as [Hshown Hdecides]. apply andb_prop in Hshown as [Hshown Hranges].
  apply andb_prop in Hshown as [Hright Hsize]. apply Nat.ltb_lt in Hright.
  assert (Hcount : length rows = classes m).
  { unfold rows. rewrite map_length, combine_length, !map_length, Hclasses. unfold classes. lia. }
  rewrite Hcount in Hright, Hdecides. split; [ exact Hright | ]. intros j Hj Hne.
  pose (class := fun wr b => (integers g ew wr, integer_of g (es + ew) b,
    underflow_units g D es ew (row_size (integers g ew wr)))).
  assert (Hrow : forall c, (c < classes m)%nat ->
    nth_error rows c = Some (class (nth c (weight m) []) (nth c (bias m) 0%Z))).
  { intros c Hc. unfold rows. unfold classes in Hc.
    assert (Hw : nth_error (weight m) c = Some (nth c (weight m) [])) by (apply nth_error_nth'; lia).
    assert (Hb : nth_error (bias m) c = Some (nth c (bias m) 0%Z)) by (apply nth_error_nth'; lia).
    revert Hw Hb. generalize (nth c (weight m) []) as r, (nth c (bias m) 0%Z) as b.
    generalize (weight m) as l, (bias m) as k. clear.
    induction c as [ | c IH ]; intros [ | x l ] [ | y k ] r b Hx Hy; try discriminate; simpl in *.
    - injection Hx as ->. injection Hy as ->. reflexivity.
    - now apply IH. }
  assert (Hcomputed : forall c, (c < classes m)%nat ->
    nth c (map (fun c => (logit D (tree_of (node_state n)) c, snd c)) rows) (0, 0, 0, 0)%Z
    = (logit D (tree_of (node_state n)) (class (nth c (weight m) []) (nth c (bias m) 0%Z)),
       snd (class (nth c (weight m) []) (nth c (bias m) 0%Z)))).
  { intros c Hc. apply nth_error_nth. rewrite nth_error_map, Hrow by exact Hc. reflexivity. }
  assert (Hin_range : forall c, (c < classes m)%nat ->
    in_range_units g D (es + ew) (logit D (tree_of (node_state n)) (class (nth c (weight m) []) (nth c (bias m) 0%Z)))
      (snd (class (nth c (weight m) []) (nth c (bias m) 0%Z))) = true).
  { intros c Hc. assert (Hl := proj1 (forallb_forall _ _) Hranges _ (nth_In _ (0, 0, 0, 0)%Z
      (eq_ind_r (fun x => (c < x)%nat) Hc (eq_trans (map_length _ _) Hcount)))). now rewrite Hcomputed in Hl. }
  apply (all_below_spec _ _ Hdecides) in Hj as Hdecision. apply orb_prop in Hdecision as [Hequal | Hdecision];
    [ apply Nat.eqb_eq in Hequal; contradiction | ].
  rewrite !Hcomputed in Hdecision by assumption. cbn [fst] in Hdecision.
  assert (Hweights : forall c, well_formed g ew D (nth c (weight m) []) = true) by (intros c; now apply forallb_nth).
  assert (Hbiases : forall c, (c < classes m)%nat -> is_multiple g (es + ew) (nth c (bias m) 0%Z) = true).
  { intros c Hc. apply (proj1 (forallb_forall _ _) Hbias). now apply nth_In. }
  refine (decision_accepted f g D es ew (node_state n) h (nth (Z.to_nat label) (weight m) [])
    (nth (Z.to_nat label) (bias m) 0%Z) (nth j (weight m) []) (nth j (bias m) 0%Z) _ _ _ Hsize Hstate_unit Hunit
    Hdimension (Hweights _) (Hbiases _ Hright) (Hweights _) (Hbiases _ Hj) (Hin_range _ Hright) (Hin_range _ Hj)
    Hdecision (Hlogits _ Hright) (Hlogits _ Hj)).
  intros k Hk. rewrite <- Hst by exact Hk.
  apply (scan_accepted f D (table m) (initial m) es Htable Hinitial eq_refl _ Hscan w h Hh k Hk).
Qed.
