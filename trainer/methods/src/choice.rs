//! The exchange of each method.

use super::{
    adaqp::AdaQp,
    bns::Bns,
    config::{Method, MethodConfig},
    exchange::BoundaryExchange,
    full::Full,
    pipegcn::PipeGcn,
    varco::{Varco, VarcoOptions},
    wire::Wire,
};

/// The options of a run that exchanges depend on.
pub(crate) struct RunShape {
    pub epochs: u64,
    pub layers: usize,
    pub seed: u64,
}

/// The exchange of a method, over a wire if several processes train. None for methods without one.
///
/// # Panics
/// If there is a wire, and the method trains in one process.
pub(crate) fn exchange_of(
    options: &MethodConfig,
    run: RunShape,
    wire: Option<Wire>,
) -> Option<Box<dyn BoundaryExchange>> {
    assert!(wire.is_none() || options.method.may_have_processes(), "one process");
    Some(match options.method {
        Method::Grappa | Method::Isolated | Method::CoFree | Method::Llcg | Method::Gern => return None,
        Method::Full => Box::new(Full::new(wire)),
        Method::Varco => {
            let options = VarcoOptions {
                schedule: options.rate_schedule,
                unit: options.rate_unit,
                epochs: run.epochs,
                seed: run.seed,
            };
            Box::new(Varco::new(options, run.layers, wire))
        }
        Method::AdaQp => Box::new(AdaQp::new(options.message_bits, run.layers, run.seed)),
        Method::Bns => Box::new(Bns::new(options.boundary_share, run.seed)),
        Method::PipeGcn => Box::new(PipeGcn::new(options.smoothing, run.layers)),
    })
}
