//! The exchange of each method.

use grappa_run::config::{Method, TrainConfig};

use super::{
    adaqp::AdaQp, bns::Bns, exchange::BoundaryExchange, full::Full, pipegcn::PipeGcn, varco::Varco, wire::Wire,
};

/// The exchange of a method, over a wire if several processes train. None for methods without one.
///
/// # Panics
/// If there is a wire, and the method trains in one process.
pub(crate) fn exchange_of(config: &TrainConfig, wire: Option<Wire>) -> Option<Box<dyn BoundaryExchange>> {
    assert!(wire.is_none() || config.method.may_have_processes(), "one process");
    Some(match config.method {
        Method::Grappa | Method::Isolated | Method::CoFree | Method::Llcg | Method::Gern => return None,
        Method::Full => Box::new(Full::new(wire)),
        Method::Varco => Box::new(Varco::new(config, wire)),
        Method::AdaQp => Box::new(AdaQp::new(config)),
        Method::Bns => Box::new(Bns::new(config)),
        Method::PipeGcn => Box::new(PipeGcn::new(config)),
    })
}
