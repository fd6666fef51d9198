use tidemark_conformance::flow::RealFlow;
use tidemark_conformance::planted::*;
use tidemark_conformance::simulation::*;
#[test]
fn count() {
    let n = 300;
    let mut c = [0; 5];
    let mut first = [None; 5];
    for seed in 0..n {
        let r = [
            simulate(seed, &PlantedFlow::Sound, |l| l),
            simulate(seed, &PlantedFlow::Sound, |l| PlantedLedger::new(l, LedgerBug::NoEpochCheck)),
            simulate(seed, &PlantedFlow::NoOpByOldHead, |l| l),
            simulate(seed, &RealFlow, |l| l),
            simulate(seed, &RealFlow, |l| PlantedLedger::new(l, LedgerBug::NoEpochCheck)),
        ];
        for (i, r) in r.iter().enumerate() {
            if let Err(e) = r { c[i] += 1; if first[i].is_none() { first[i] = Some(seed); println!("{i} {seed} {e}"); } }
        }
    }
    println!("{c:?} {first:?}");
}
