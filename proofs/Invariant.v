(** Head, machine and domain side by side: what holds of their states after every word.

    An invariant that the first letter establishes and every further letter keeps holds after every word of the
    domain.  Nothing here is about numbers. *)

From Coq Require Import List Bool.
Import ListNotations.

Section Invariant.

Context {letter head machine domain : Type}.
Context (letters : letter -> Prop).
Context (head_step : head -> letter -> head) (machine_step : machine -> letter -> machine).
Context (domain_step : domain -> letter -> domain) (inside : domain -> bool).
Context (head_start : head) (machine_start : machine) (domain_start : domain).

Definition head_after (w : list letter) : head := fold_left head_step w head_start.
Definition machine_after (w : list letter) : machine := fold_left machine_step w machine_start.
Definition domain_after (w : list letter) : domain := fold_left domain_step w domain_start.

(** The domain is closed under prefixes: a word cannot come back from outside. *)
Definition closed_under_prefixes : Prop :=
  forall w a, letters a -> w <> [] -> Forall letters w ->
  inside (domain_after (w ++ [a])) = true -> inside (domain_after w) = true.

Lemma closed_by_steps : (forall d a, letters a -> inside (domain_step d a) = true -> inside d = true) ->
  closed_under_prefixes.
Proof.
  intros Hsteps w a Ha _ _ Hinside. apply Hsteps with (1 := Ha).
  unfold domain_after in *. now rewrite fold_left_app in Hinside.
Qed.

Context (invariant : head -> machine -> domain -> Prop).

(** Theorem (b). *)
Theorem invariant_after_every_word :
  closed_under_prefixes ->
  (forall a, letters a -> inside (domain_step domain_start a) = true ->
    invariant (head_step head_start a) (machine_step machine_start a) (domain_step domain_start a)) ->
  (forall h q d a, letters a -> invariant h q d -> inside (domain_step d a) = true ->
    invariant (head_step h a) (machine_step q a) (domain_step d a)) ->
  forall w, w <> [] -> Forall letters w -> inside (domain_after w) = true ->
  invariant (head_after w) (machine_after w) (domain_after w).
Proof.
  intros Hclosed Hfirst Hnext w. induction w as [ | a w IH ] using rev_ind; intros Hnonempty Hletters Hinside.
  - now contradiction Hnonempty.
  - apply Forall_app in Hletters as [Hw Ha]. inversion Ha; subst.
    unfold head_after, machine_after, domain_after. rewrite !fold_left_app. simpl.
    assert (Hinside' := Hinside). unfold domain_after in Hinside'. rewrite fold_left_app in Hinside'. simpl in Hinside'.
    destruct w as [ | b w ]; [ now apply Hfirst | ].
    apply Hnext; [ assumption | | exact Hinside' ].
    apply IH; [ discriminate | exact Hw | ].
    apply Hclosed with a; [ assumption | discriminate | exact Hw | exact Hinside ].
Qed.

End Invariant.
