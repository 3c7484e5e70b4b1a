//! What holds for whatever is asked.
