//! The records of containers: written before anything in them is made, removed after the container is gone.
//!
//! | module | what it does |
//! |---|---|
//! | [`store`], [`record`] | one directory, one lock and one record for each container |
//! | [`census`], [`half_made`] | which containers share namespaces; processes that are not their program yet |
//! | [`find`], [`identity`] | which container somebody means, and who it is for people |
//! | [`report`] | the pipe by which a container's process says why it did not start |
//! | [`persons`] | where all of it lies for somebody without root's rights |

pub mod census;
pub mod find;
pub mod half_made;
pub mod identity;
pub mod persons;
pub mod record;
pub mod report;
pub mod store;
