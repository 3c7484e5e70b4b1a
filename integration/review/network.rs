//! The network wall: denials, metadata, second greetings, approvals, neighbours (N).
