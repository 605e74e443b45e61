//! The exchange of each method.

use grappa_run::config::{Method, TrainConfig};

use super::{adaqp::AdaQp, bns::Bns, exchange::BoundaryExchange, full::Full, pipegcn::PipeGcn, varco::Varco};

/// The exchange of a method. None for those without one.
pub(crate) fn exchange_of(config: &TrainConfig) -> Option<Box<dyn BoundaryExchange>> {
    Some(match config.method {
        Method::Grappa | Method::Isolated | Method::CoFree | Method::Llcg | Method::Gern => return None,
        Method::Full => Box::new(Full::default()),
        Method::Varco => Box::new(Varco::new(config)),
        Method::AdaQp => Box::new(AdaQp::new(config)),
        Method::Bns => Box::new(Bns::new(config)),
        Method::PipeGcn => Box::new(PipeGcn::new(config)),
    })
}
