//! Many handlers at once end in the same state as one clean run, in every interleaving that a seed finds.

use tidemark_conformance::flow::RealFlow;
use tidemark_conformance::simulation::simulate;

/// As many as take some five to ten seconds.
const SEEDS: u64 = 200;

#[test]
fn every_interleaving_ends_at_what_upstream_holds() {
    #[expect(clippy::disallowed_methods, reason = "replays one seed: TIDEMARK_SEED=17 cargo test --test simulation")]
    let chosen = std::env::var("TIDEMARK_SEED").ok().map(|seed| seed.parse::<u64>().expect("TIDEMARK_SEED is a number"));
    let seeds = chosen.map_or(0..SEEDS, |seed| seed..seed + 1);
    let (mut runs, mut changes) = (0, 0);
    for seed in seeds {
        match simulate(seed, &RealFlow, |ledger| ledger) {
            Ok(left) => changes += left["ledger"]["changes"].as_array().unwrap().len(),
            Err(wrong) => panic!("TIDEMARK_SEED={seed}: {wrong}"),
        }
        runs += 1;
    }
    assert!(changes > runs * 5, "{changes} changes in {runs} runs: too little happens");
}

#[test]
fn a_seed_replays_a_run() {
    let run = |seed| simulate(seed, &RealFlow, |ledger| ledger);
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}
