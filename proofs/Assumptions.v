(** What the theorems rest on.  `make proofs` fails if this prints more than the axioms of the real numbers. *)

From Transductor Require Import Scan Monomial Integers Invariant Readout Existence Soundness.

Print Assumptions exact_product.
Print Assumptions exact_state.
Print Assumptions exact_state_by_rows.
Print Assumptions exact_state_by_columns.
Print Assumptions exact_state_by_bound.
Print Assumptions invariant_after_every_word.
Print Assumptions sum_near_exact.
Print Assumptions gap_decides.
Print Assumptions some_computation.
Print Assumptions check_sound.
