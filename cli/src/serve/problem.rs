//! The page's faults look like those of the shared edge.

pub(super) use tidemark_edge::Problem;
