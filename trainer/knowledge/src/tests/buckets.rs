use std::fs;

use grappa_io::progress::Silent;

use super::graph::{nodes_of, triples};
use crate::{
    buckets::{Buckets, Visits},
    triples::Triple,
};

#[test]
fn visits_are_all_pairs_and_move_one_partition_at_a_time() {
    for parts in 1..12 {
        let visits = Visits::new(parts);
        for pair in visits.pairs().windows(2) {
            let stay = pair[1].iter().filter(|part| pair[0].contains(part)).count();
            assert_eq!(stay, 1, "{parts} parts: {pair:?}");
        }
        for (head, tail) in (0..parts).flat_map(|head| (0..parts).map(move |tail| (head, tail))) {
            let visit = visits.of_triple(Triple { head, relation: 0, tail: tail + 3 * parts });
            let pair = visits.pairs()[visit];
            assert!(pair.contains(&head) && pair.contains(&tail), "{parts} parts: {head}, {tail} in {pair:?}");
        }
        let (even, mut odd) = (visits.of_epoch(2), visits.of_epoch(3));
        odd.reverse();
        assert_eq!(even, odd);
        assert_eq!(even.len(), (parts * parts.saturating_sub(1) / 2).max(1) as usize);
    }
}

#[test]
fn buckets_on_disk_are_those_in_memory_and_are_checked_and_removed() {
    let (folder, triples) = triples();
    let path = folder.path().join("triples.tmp");
    for partitions in [1, 2, 5] {
        let visits = Visits::new(partitions);
        let in_memory = Buckets::read(&triples, &visits, None, &Silent).unwrap();
        let on_disk = Buckets::read(&triples, &visits, Some(&path), &Silent).unwrap();
        let (mut buffer, mut all) = (Vec::new(), Vec::new());
        for visit in 0..visits.pairs().len() {
            in_memory.load(visit, &mut buffer).unwrap();
            let expected = in_memory.triples(visit, &buffer).to_vec();
            assert!(expected.iter().all(|&numbers| visits.of_triple(Triple::from_numbers(numbers)) == visit));
            on_disk.load(visit, &mut buffer).unwrap();
            assert_eq!(on_disk.triples(visit, &buffer), expected);
            all.extend(expected.into_iter().map(Triple::from_numbers));
        }
        all.sort();
        assert_eq!(all, nodes_of(&triples)[0]);
        let mut bytes = fs::read(&path).unwrap();
        bytes[5] ^= 1;
        fs::write(&path, bytes).unwrap();
        let visit = (0..visits.pairs().len()).find(|&visit| in_memory.count(visit) > 0).unwrap();
        let error = on_disk.load(visit, &mut buffer).unwrap_err().to_string();
        assert!(error.contains("the triples changed while the run trained"), "{error}");
        drop(on_disk);
        assert!(!path.exists());
    }
}
