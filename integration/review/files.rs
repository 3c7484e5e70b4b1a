//! Files: what is judged by its name and lies elsewhere, masks, workspaces (F-H3, F-H4, F-M2 to F-M5).
