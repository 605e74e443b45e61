//! The report of a run, and comparisons of several runs and of methods: self-contained HTML pages.
//!
//! Plots are SVG that stretches with the page. Their labels are HTML, so text has the same size on a phone and on a wide screen. Small
//! scripts show the values of an epoch that the reader points at, and sort tables; a page is complete without them. The report has a few
//! hundred kilobytes for any number of epochs.

#![forbid(unsafe_code)]

mod charts;
mod classes;
mod compare;
mod html;
mod methods;
mod plot;
mod run_report;
mod scale;
mod series;
mod tables;
mod targets;
#[cfg(test)]
mod tests;
mod tiles;

pub use self::{
    compare::Comparison,
    methods::{MethodComparison, MethodRuns},
    run_report::{Fact, Report, RunFacts},
};
