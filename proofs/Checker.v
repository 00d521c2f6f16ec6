(** The checker: a boolean that Rocq computes from a model, a specification and evidence.

    Everything here is arithmetic of integers; Soundness.v proves that [true] means agreement. *)

From Coq Require Import ZArith NArith List Bool.
From Transductor Require Import Floats Sums Patterns Certificate Lookup.
Import ListNotations.
Open Scope Z_scope.

(** A node of the invariant: a state of the head in units of 2^state_unit, with the states of machine and domain
    beside it, and the node that each letter leads to. *)
Record node : Type := Node {
  node_state : list Z;
  node_machine : N;
  node_domain : N;
  node_targets : list N
}.

(** A product of letters, by its columns, and the product that each further letter leads to. *)
Record product_node : Type := ProductNode {
  product_columns : list (list Z);
  product_targets : list N
}.

(** Why the scan is exact: at most one entry 1 or -1 in every row, or in every column; or a list of all products of
    letters, none with an entry above a bound, the first one being the identity. *)
Inductive reason : Type :=
  | Rows
  | Columns
  | Bounded (largest : Z) (products : list product_node).

Record evidence : Type := Evidence {
  why_exact : reason;
  state_unit : Z;
  weight_unit : Z;
  first_targets : list N;
  nodes : list node
}.

(** Bit patterns become integers. *)

Definition well_formed (f : format) (unit : Z) (D : nat) (r : row) : bool :=
  ascending 0 (N.of_nat D) r && forallb (fun p => is_multiple f unit (snd p)) r.
Definition integers (f : format) (unit : Z) (r : row) : integer_row :=
  map (fun p => (fst p, integer_of f unit (snd p))) r.

(** The state after a letter. *)
Definition stepped (matrices : list (list integer_row)) (a : nat) (t : tree Z) : list Z :=
  map (fun r => dot r t) (nth a matrices []).

(** The scan is exact. *)

Definition rows_exact (matrices : list (list integer_row)) : bool :=
  forallb (forallb (fun r => row_size r <=? 1)) matrices.

Definition columns_exact (D : nat) (matrices : list (list integer_row)) : bool :=
  forallb (fun M => (length M =? D)%nat
    && all_below D (fun j => total (map (fun r => Z.abs (integer_at r (N.of_nat j))) M) <=? 1)) matrices.

Definition state_has_room (f : format) (unit : Z) (state : list Z) : bool :=
  let units := size state in
  (least_exponent (precision f) (largest_exponent f) <=? unit) && (units <=? 2 ^ precision f)
    && (unit <=? largest_exponent f) && (units <? 2 ^ (largest_exponent f - unit)).

Definition same_columns (A B : list (list Z)) : bool :=
  (length A =? length B)%nat && forallb (fun p => same (fst p) (snd p)) (combine A B).

Definition identity_columns (D : nat) : list (list Z) :=
  map (fun j => map (fun i => if Nat.eqb i j then 1 else 0) (seq 0 D)) (seq 0 D).

Definition product_closed (matrices : list (list integer_row)) (all : tree product_node) (p : product_node) : bool :=
  let columns := map tree_of (product_columns p) in
  all_below (length matrices) (fun a =>
    match lookup all (nth a (product_targets p) 0%N) with
    | Some q => same_columns (map (stepped matrices a) columns) (product_columns q)
    | None => false
    end).

Definition bounded_exact (f : format) (D : nat) (unit : Z) (matrices : list (list integer_row)) (state : list Z)
    (largest : Z) (products : list product_node) : bool :=
  let all := tree_of products in
  match products with
  | [] => false
  | p :: _ => same_columns (identity_columns D) (product_columns p)
  end
  && (0 <=? largest)
  && forallb (product_closed matrices all) products
  && forallb (fun p => forallb (forallb (fun k => Z.abs k <=? largest)) (product_columns p)) products
  && (Z.of_nat D * largest * largest <=? 2 ^ precision f)
  && (Z.of_nat D * largest * largest * size state <=? 2 ^ precision f)
  && (least_exponent (precision f) (largest_exponent f) <=? unit) && (unit + precision f <? largest_exponent f).

Definition scan_exact (f : format) (D : nat) (unit : Z) (matrices : list (list integer_row)) (state : list Z)
    (why : reason) : bool :=
  match why with
  | Rows => rows_exact matrices
  | Columns => columns_exact D matrices && state_has_room f unit state
  | Bounded largest products => bounded_exact f D unit matrices state largest products
  end.

(** The readout decides: a gap above the rounding bounds of both logits. *)

(** An integer that is at least k times 2^s, for k >= 0. *)
Definition at_least (k s : Z) : Z := if 0 <=? s then k * 2 ^ s else k / 2 ^ (- s) + 1.

(** What underflow may add to the error of a logit, in units of the logits. *)
Definition underflow_units (f : format) (D : nat) (state_unit weight_unit weights : Z) : Z :=
  let least := least_exponent (precision f) (largest_exponent f) - 1 + precision f in
  at_least (2 * Z.of_nat D + 1) (least - (state_unit + weight_unit)) + at_least weights (least - state_unit).

(** A readout in integers: for every class its row, its bias and its underflow. *)
Definition class_row : Type := integer_row * Z * Z.

(** Exact value, absolute values and error of a logit, the latter in units divided by [2^precision - (D + 2)]. *)
Definition logit (D : nat) (t : tree Z) (c : class_row) : Z * Z * Z :=
  let '(r, b, lost) := c in
  let absolute := Z.abs b + absolute_dot r t in
  (b + dot r t, absolute, (Z.of_nat D + 2) * absolute + lost).

Definition in_range_units (f : format) (D : nat) (unit : Z) (l : Z * Z * Z) (lost : Z) : bool :=
  let '(_, absolute, _) := l in
  absolute * 2 ^ precision f + lost
    <=? (2 ^ precision f - (Z.of_nat D + 2)) * 2 ^ (largest_exponent f - 1 - unit).

Definition decides (q : Z) (right wrong : Z * Z * Z) : bool :=
  let '(s, _, e) := right in let '(s', _, e') := wrong in e + e' <? (s - s') * q.

(** [state] is what the readout reads, and [t] the same as a tree. *)
Definition label_shown (f : format) (D : nat) (state_unit weight_unit : Z) (rows : list class_row)
    (t : tree Z) (state : list Z) (label : Z) : bool :=
  if label <? 0 then true else
  let q := 2 ^ precision f - (Z.of_nat D + 2) in
  let right := Z.to_nat label in
  let logits := map (fun c => (logit D t c, snd c)) rows in
  forallb (fun k => Z.abs k <=? 2 ^ (largest_exponent f - 1 - state_unit)) state
  && forallb (fun l => in_range_units f D (state_unit + weight_unit) (fst l) (snd l)) logits
  && match logits with
     | [only] => (label =? 1) && decides q (fst only) (0, 0, 0) || (label =? 0) && decides q (0, 0, 0) (fst only)
     | _ => (right <? length rows)%nat &&
         let best := fst (nth right logits (0, 0, 0, 0)) in
         all_below (length rows) (fun j => (j =? right)%nat || decides q best (fst (nth j logits (0, 0, 0, 0))))
     end.

(** The invariant. *)

(** A letter leads from a node to a node, or out of the domain.  [label_ok] looks at a node and at the state before. *)
Definition edge_kept (s : specification) (matrices : list (list integer_row)) (all : tree node)
    (label_ok : node -> list Z -> bool) (st : list Z) (t : tree Z) (q d : N) (targets : list N) (a : nat) : bool :=
  let d' := next (domain_transitions s) d a in
  if inside s d' then
    match lookup all (nth a targets 0%N) with
    | Some n => N.eqb (node_machine n) (next (transitions s) q a) && N.eqb (node_domain n) d'
        && same (stepped matrices a t) (node_state n) && label_ok n st
    | None => false
    end
  else true.

Definition domain_closed (s : specification) (V : nat) : bool :=
  (length (domain_outputs s) <=? length (domain_transitions s))%nat
  && all_below (length (domain_transitions s)) (fun d => inside s (N.of_nat d)
    || all_below V (fun a => negb (inside s (next (domain_transitions s) (N.of_nat d) a)))).

(** All of it. *)
Definition check (m : model) (s : specification) (e : evidence) : bool :=
  let D := dimension m in
  let O := shown_dimension m in
  let f := head_format m in
  let g := readout_format m in
  let matrices := map (map (integers f 0)) (table m) in
  let state := map (integer_of f (state_unit e)) (initial m) in
  let weights := map (integers g (weight_unit e)) (weight m) in
  let unit := state_unit e + weight_unit e in
  let biases := map (integer_of g unit) (bias m) in
  let rows := map (fun p => (fst p, snd p, underflow_units g O (state_unit e) (weight_unit e) (row_size (fst p))))
    (combine weights biases) in
  let all := tree_of (nodes e) in
  let shows := fun n read =>
    label_shown g O (state_unit e) (weight_unit e) rows (tree_of read) read (output (outputs s) (node_machine n)) in
  (* where the head looks back, a label depends on the node and on the state before it *)
  let on_edges := fun n before =>
    if lookback m then (length (node_state n) =? D)%nat && shows n (node_state n ++ before) else true in
  (* the bit patterns are finite and have the units they are said to have *)
  forallb (forallb (well_formed f 0 D)) (table m)
  && forallb (is_multiple f (state_unit e)) (initial m)
  && (length (weight m) =? length (bias m))%nat
  && forallb (well_formed g (weight_unit e) O) (weight m)
  && forallb (is_multiple g unit) (bias m)
  && (Z.of_nat O + 2 <? 2 ^ precision g)
  && (state_unit e <=? largest_exponent g - 1) && (unit <=? largest_exponent g - 1)
  (* the scan is exact *)
  && scan_exact f D (state_unit e) matrices state (why_exact e)
  (* words stay in the domain, and in the nodes *)
  && domain_closed s (length (table m))
  && (let t := tree_of state in
      all_below (length (table m))
        (edge_kept s matrices all on_edges state t (start s) (domain_start s) (first_targets e)))
  && forallb (fun n => let t := tree_of (node_state n) in
      all_below (length (table m))
        (edge_kept s matrices all on_edges (node_state n) t (node_machine n) (node_domain n) (node_targets n))
      && (lookback m || shows n (node_state n)))
    (nodes e).
