//! What the benches share.

pub mod shapes;
