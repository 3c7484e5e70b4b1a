//! Processes: verbs that wait, core dumps, set-id files, groups, terminals (F-H1, F-H2, F-H5 to F-H7).
