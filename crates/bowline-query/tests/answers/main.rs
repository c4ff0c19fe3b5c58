//! Answers to single queries that were wrong once, or could be.

mod numbers;
mod paths;
mod projections;
