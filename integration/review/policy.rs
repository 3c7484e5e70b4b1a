//! Policies: who may loosen, what a default becomes, mistakes of an operator (F-C1, N-H1, N-M3, N-M4, U-B).
