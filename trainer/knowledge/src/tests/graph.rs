//! Small graphs of triples.

use std::{fs, path::PathBuf};

use grappa_formats::random;
use grappa_ingestion::ingest::{EdgeSplit, GraphIngestOptions, NodeTypeIngest, RelationIngest, ingest_graph};
use grappa_io::progress::Silent;
use grappa_storage::{ExternalId, Graph};
use tempfile::TempDir;

use crate::triples::{Triple, Triples};

pub const ENTITIES: u64 = 60;
pub const RELATIONS: u32 = 3;
/// Entities without a training triple.
pub const UNSEEN: [u32; 2] = [57, 58];

/// The triples of [`parts`], by the nodes that ingest made of their entities.
pub fn nodes_of(triples: &Triples) -> [Vec<Triple>; 3] {
    let node = |entity: u32| {
        let found = triples.entities().node(&ExternalId::Integer(entity.into())).unwrap();
        found.expect("it was ingested").0 as u32
    };
    parts().map(|part| {
        let mut part: Vec<Triple> = part
            .into_iter()
            .map(|Triple { head, relation, tail }| Triple { head: node(head), relation, tail: node(tail) })
            .collect();
        part.sort();
        part
    })
}

/// Triples of a rule: train, val, test. Relation `r` leads from an entity to one `7 r + 1` or `7 r + 2` further.
pub fn parts() -> [Vec<Triple>; 3] {
    let mut parts: [Vec<Triple>; 3] = Default::default();
    for head in 0..ENTITIES as u32 - 5 {
        for relation in 0..RELATIONS {
            for step in [1, 2] {
                let tail = (head + 7 * relation + step) % (ENTITIES as u32 - 5);
                let triple = Triple { head, relation, tail };
                let draw = random::draw_at(1, u64::from(head) * 64 + u64::from(relation * 8 + step)) % 10;
                parts[if draw > 7 { draw as usize - 7 } else { 0 }].push(triple);
            }
        }
    }
    parts[2].push(Triple { head: 3, relation: 1, tail: UNSEEN[0] });
    parts[2].push(Triple { head: UNSEEN[1], relation: 0, tail: 4 });
    parts
}

/// The graph of [`parts`], in a folder.
pub fn graph() -> (TempDir, Graph) {
    let folder = tempfile::tempdir().unwrap();
    let parts = parts();
    let file = |part: usize, relation: u32| -> PathBuf {
        let triples = parts[part].iter().filter(|triple| triple.relation == relation);
        let lines: String = triples.map(|triple| format!("{}\t{}\n", triple.head, triple.tail)).collect();
        let path = folder.path().join(format!("{part}-{relation}.tsv"));
        fs::write(&path, lines).unwrap();
        path
    };
    let relations = (0..RELATIONS).map(|relation| {
        let [train, val, test] = [0, 1, 2].map(|part| file(part, relation));
        let mut options = RelationIngest::new(["entity", &format!("r{relation}"), "entity"], [train]);
        options.edges.split = Some(EdgeSplit::Files { val: vec![val.into()], test: vec![test.into()] });
        options
    });
    let mut entity = NodeTypeIngest::new("entity");
    entity.nodes.number = Some(ENTITIES);
    let out = folder.path().join("triples.grappa");
    let options = GraphIngestOptions {
        node_types: vec![entity],
        relations: relations.collect(),
        ..GraphIngestOptions::new(out.clone())
    };
    ingest_graph(&options, &Silent).unwrap();
    (folder, Graph::open(&out).unwrap())
}

pub fn triples() -> (TempDir, Triples) {
    let (folder, graph) = graph();
    (folder, Triples::open(graph).unwrap())
}

#[test]
fn triples_of_a_graph_are_those_of_its_files() {
    use grappa_formats::EdgePart;
    let (_folder, triples) = triples();
    for (part, expected) in EdgePart::ALL.into_iter().zip(nodes_of(&triples)) {
        let mut found = Vec::new();
        triples
            .for_each(part, &Silent, |triple| {
                found.push(triple);
                Ok(())
            })
            .unwrap();
        found.sort();
        assert_eq!(found, expected, "{part}");
        assert_eq!(triples.count(part), expected.len() as u64);
    }
}
