//! The times of node types and relations: one unit for all, because the time of a seed limits all of them, and one order for each list.

use grappa_formats::time_axis::TimeUnit;
use grappa_input::TimeColumn;
use grappa_io::{Error, Result, text::printable};

use super::options::{GraphIngestOptions, RelationIngest};
use crate::ingest::node_ingest::two_orders;

/// A node type or relation with times, and its column.
struct Timed<'a> {
    name: String,
    option: &'static str,
    time: &'a mut TimeColumn<String>,
}

impl Timed<'_> {
    fn unit(&self) -> TimeUnit {
        self.time.unit.unwrap_or(TimeUnit::Integer)
    }

    /// The error about its unit beside the unit of another.
    fn conflict(&self, other: &str, unit: TimeUnit) -> Error {
        let (name, option) = (printable(&self.name), self.option);
        Error::conflict(
            format!(
                "the times of {name} are in the unit {}, and the times of {} in {unit}",
                self.unit(),
                printable(other)
            ),
            format!("give all of them one unit, such as {option}-unit {name}=s; integers then count it since 1970"),
        )
    }
}

/// The members with times: node types, then relations. Relations without edges have none.
fn timed(options: &mut GraphIngestOptions) -> Vec<Timed<'_>> {
    let node_types = options.node_types.iter_mut().filter_map(|node_type| {
        let time = node_type.nodes.data.tables.columns.time.as_mut()?;
        Some(Timed { name: node_type.name.clone(), option: "--node-time", time })
    });
    let relations = options.relations.iter_mut().filter_map(|relation| {
        let name = name_of(relation);
        let time = relation.edges.form.columns.time.as_mut()?;
        Some(Timed { name, option: "--time", time })
    });
    node_types.chain(relations).collect()
}

fn name_of(relation: &RelationIngest) -> String {
    format!("{}:{}:{}", relation.source, relation.name, relation.destination)
}

/// The members whose unit the user gives, by name.
pub fn given_units(options: &mut GraphIngestOptions) -> Vec<String> {
    timed(options).into_iter().filter(|member| member.time.unit.is_some()).map(|member| member.name).collect()
}

/// Chooses one unit for all times, after the unit of each was found: the given one, or the finest one.
///
/// # Errors
/// If there is none in which all are whole, or integers may count something else.
pub fn choose_unit(options: &mut GraphIngestOptions, given: &[String]) -> Result<()> {
    let mut members = timed(options);
    members.retain(|member| member.time.unit.is_some());
    let is_given = |member: &Timed<'_>| given.contains(&member.name);
    let finest = |members: &[Timed<'_>]| {
        let of_members = members.iter().map(|member| (member.unit().nanoseconds(), member.name.clone(), member.unit()));
        of_members.min_by_key(|(nanoseconds, ..)| *nanoseconds)
    };
    let (mut fixed, found): (Vec<_>, Vec<_>) = members.into_iter().partition(is_given);
    fixed.sort_by_key(|member| member.unit().nanoseconds());
    let Some((_, name, unit)) = finest(&fixed).or_else(|| finest(&found)) else { return Ok(()) };
    if let Some(other) = fixed.iter().find(|member| member.unit() != unit) {
        return Err(other.conflict(&name, unit));
    }
    for member in found {
        let is_whole = match (member.unit().nanoseconds(), unit.nanoseconds()) {
            (Some(own), Some(of_all)) => own >= of_all,
            (own, of_all) => own == of_all,
        };
        if !is_whole {
            return Err(member.conflict(&name, unit));
        }
        member.time.unit = Some(unit);
    }
    Ok(())
}

/// Fails if edges have times, and their sources as well.
pub fn check(options: &GraphIngestOptions) -> Result<()> {
    let is_timed = |name: &str| options.node_types.iter().any(|of| of.name == name && of.nodes.is_timed());
    for relation in options.relations.iter().filter(|relation| relation.edges.form.columns.time.is_some()) {
        let of_reverse = relation.reverse.as_ref().map(|_| &relation.destination);
        if let Some(sources) = [&relation.source].into_iter().chain(of_reverse).find(|name| is_timed(name)) {
            let name = name_of(relation);
            return Err(two_orders(
                format!(
                    "{}: the edges have times, and so have the nodes of type {}",
                    printable(&name),
                    printable(sources)
                ),
                format!("give --time {}=none, or --node-time {}=none", printable(&name), printable(sources)),
            ));
        }
    }
    Ok(())
}
