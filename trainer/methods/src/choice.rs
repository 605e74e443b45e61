//! The exchange of each method.

use grappa_run::config::TrainConfig;

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

/// The exchange of a method, over a wire if several processes train. None for methods without one.
///
/// # Panics
/// If there is a wire, and the method trains in one process.
pub(crate) fn exchange_of(
    options: &MethodConfig,
    config: &TrainConfig,
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
                epochs: config.epochs,
                seed: config.seed,
            };
            Box::new(Varco::new(options, config.layers, wire))
        }
        Method::AdaQp => Box::new(AdaQp::new(options.message_bits, config.layers, config.seed)),
        Method::Bns => Box::new(Bns::new(options.boundary_share, config.seed)),
        Method::PipeGcn => Box::new(PipeGcn::new(options.smoothing, config.layers)),
    })
}
