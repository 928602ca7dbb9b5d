//! Runs of whole seeds.

use gabion_sim::{Overrides, Params, run};

#[test]
fn the_same_seed_goes_the_same_way_twice() {
    for seed in 1..13 {
        let params = Params::derive(seed, Overrides::default());
        let (first, second) = (run(&params, false), run(&params, false));
        match (first, second) {
            (Ok(first), Ok(second)) => assert_eq!(first, second, "seed {seed}"),
            (Err(failure), _) | (_, Err(failure)) => panic!("{failure}"),
        }
    }
}

#[test]
fn disks_are_so_slow_now_and_then_that_records_wait_for_others() {
    let waits = |seed| run(&Params::derive(seed, Overrides::default()), false).unwrap().held > 0;
    assert!((13..200).any(waits));
}

#[test]
fn different_seeds_go_different_ways() {
    let hash = |seed| run(&Params::derive(seed, Overrides { ops: Some(30), ..Overrides::default() }), false).unwrap();
    assert_ne!(hash(1).hash, hash(2).hash);
}
