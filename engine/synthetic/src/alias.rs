//! Alias tables (Walker, "An Efficient Method for Generating Discrete Random Variables", 1977), made by Vose's method, with integers so
//! that no mass is lost.

/// Divides the masses of outcomes among cells of mass `cell`, one per outcome. Calls `fill` for each cell that takes mass of another
/// outcome: with the outcome, the mass that it keeps, and the other. The masses need only roughly add up to the cells: the likeliest outcome
/// gets the rest.
pub(super) fn fill_cells(masses: &mut [u64], cell: u64, mut fill: impl FnMut(usize, u64, usize)) {
    let likeliest = (0..masses.len()).max_by_key(|&i| masses[i]).expect("an outcome");
    let others = masses.iter().sum::<u64>() - masses[likeliest];
    masses[likeliest] = cell * masses.len() as u64 - others;
    // Repeatedly fill a cell that has too little mass with mass of one that has too much. Each step completes one cell.
    let (mut small, mut large): (Vec<usize>, Vec<usize>) = (0..masses.len()).partition(|&i| masses[i] < cell);
    while let Some(poor) = small.pop() {
        let rich = *large.last().expect("the masses add up to the cells, so some cell has too much");
        fill(poor, masses[poor], rich);
        masses[rich] -= cell - masses[poor];
        if masses[rich] < cell {
            large.pop();
            small.push(rich);
        }
    }
}
