//! The code against the crate `reed-solomon-erasure`, and its laws.

#![allow(clippy::unwrap_used)]

use std::num::NonZeroUsize;

use gabion_erasure::{Codec, ErasureError, crc64, kernel};
use gabion_types::Geometry;
use proptest::prelude::*;
use rand::{Rng, RngCore, SeedableRng, rngs::SmallRng, seq::SliceRandom};
use reed_solomon_erasure::galois_8::ReedSolomon;

fn geometry(data: usize, parity: usize) -> Geometry {
    Geometry::new(data, parity).unwrap()
}

fn random_shards(seed: u64, count: usize, len: usize) -> Vec<Vec<u8>> {
    let mut rng = SmallRng::seed_from_u64(seed);
    let shard = || {
        let mut shard = vec![0; len];
        rng.fill_bytes(&mut shard);
        shard
    };
    std::iter::repeat_with(shard).take(count).collect()
}

/// Random data shards followed by the parity that `codec` gives.
fn encoded(codec: &Codec, seed: u64, len: usize) -> Vec<Vec<u8>> {
    let mut shards = random_shards(seed, codec.geometry().shards(), len);
    let (data, parity) = shards.split_at_mut(codec.geometry().data());
    let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let mut parity: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
    codec.encode(&data, &mut parity).unwrap();
    shards
}

/// Rebuilds `want` from `have` and compares with what was encoded.
fn assert_rebuilds(codec: &Codec, shards: &[Vec<u8>], have: &[usize], want: &[usize]) {
    let len = shards[0].len();
    let have: Vec<(usize, &[u8])> = have.iter().map(|&index| (index, shards[index].as_slice())).collect();
    let mut rebuilt: Vec<(usize, Vec<u8>)> = want.iter().map(|&index| (index, vec![0xee; len])).collect();
    let mut outputs: Vec<(usize, &mut [u8])> =
        rebuilt.iter_mut().map(|(index, shard)| (*index, shard.as_mut_slice())).collect();
    codec.reconstruct(&have, &mut outputs).unwrap();
    for (index, shard) in &rebuilt {
        assert!(shard == &shards[*index], "{codec:?}: shard {index} of {len} bytes");
    }
}

const GEOMETRIES: [(usize, usize); 14] = [
    (1, 1),
    (1, 2),
    (2, 1),
    (2, 2),
    (3, 2),
    (4, 2),
    (5, 4),
    (8, 3),
    (10, 6),
    (12, 7),
    (16, 4),
    (17, 13),
    (100, 16),
    (128, 16),
];

#[test]
fn parity_is_that_of_the_oracle() {
    for (data, parity) in GEOMETRIES {
        let oracle = ReedSolomon::new(data, parity).unwrap();
        for kernel in kernel::available() {
            let codec = Codec::with_kernel(geometry(data, parity), *kernel);
            for len in [1, 64, 1000, 4096] {
                let shards = encoded(&codec, len as u64, len);
                assert!(oracle.verify(&shards).unwrap(), "{codec:?}, {len} bytes");
            }
        }
    }
}

#[test]
fn random_losses_are_rebuilt() {
    let mut rng = SmallRng::seed_from_u64(7);
    for (data, parity) in GEOMETRIES {
        for kernel in kernel::available() {
            let codec = Codec::with_kernel(geometry(data, parity), *kernel);
            let shards = encoded(&codec, 3, 777);
            let mut order: Vec<usize> = (0..data + parity).collect();
            for _ in 0..20 {
                order.shuffle(&mut rng);
                let (have, lost) = order.split_at(data);
                assert_rebuilds(&codec, &shards, have, lost);
                assert_rebuilds(&codec, &shards, have, &lost[..1]);
            }
        }
    }
}

#[test]
fn every_loss_of_two_of_six_is_rebuilt() {
    let codec = Codec::new(geometry(4, 2));
    let shards = encoded(&codec, 11, 4096);
    for a in 0..6 {
        for b in 0..6 {
            let have: Vec<usize> = (0..6).filter(|&index| index != a && index != b).collect();
            let want = if a == b { vec![a] } else { vec![a, b] };
            assert_rebuilds(&codec, &shards, &have, &want);
            assert_rebuilds(&codec.clone(), &shards, &have, &want);
        }
    }
}

#[test]
fn without_parity_there_is_nothing_to_do() {
    for data in [1, 4] {
        let codec = Codec::new(geometry(data, 0));
        let shards = encoded(&codec, 1, 100);
        assert_rebuilds(&codec, &shards, &(0..data).collect::<Vec<_>>(), &[]);
        let have: Vec<(usize, &[u8])> = (1..data).map(|index| (index, shards[index].as_slice())).collect();
        let refused = codec.reconstruct(&have, &mut [(0, &mut [0; 100])]);
        assert_eq!(refused, Err(ErasureError::TooFewShards { given: data - 1, needed: data }));
    }
}

#[test]
fn calls_that_make_no_sense_are_refused() {
    let codec = Codec::new(geometry(2, 1));
    let encode = |data: &[&[u8]], parity: &mut [&mut [u8]]| codec.encode(data, parity).unwrap_err();
    let count = |role, given, expected| ErasureError::ShardCount { role, given, expected };
    assert_eq!(encode(&[b"a"], &mut [&mut [0]]), count("data", 1, 2));
    assert_eq!(encode(&[b"a", b"b"], &mut []), count("parity", 0, 1));
    let odd = ErasureError::ShardLength { given: 2, expected: 1 };
    assert_eq!(encode(&[b"a", b"bb"], &mut [&mut [0]]), odd);
    assert_eq!(encode(&[b"a", b"b"], &mut [&mut [0; 2]]), odd);

    let block = NonZeroUsize::MIN;
    let checked =
        |own_bytes: &[usize]| codec.encode_with_crcs(&[b"a", b"b"], &mut [&mut [0]], own_bytes, block).unwrap_err();
    assert_eq!(checked(&[1]), count("data", 1, 2));
    assert_eq!(checked(&[1, 2]), odd);
    let refused = codec.encode_with_crcs(&[b"a", b"bb"], &mut [&mut [0]], &[1, 1], block);
    assert_eq!(refused, Err(odd.clone()));

    let reconstruct = |have: &[(usize, &[u8])], want: usize, len| {
        codec.reconstruct(have, &mut [(want, &mut vec![0; len])]).unwrap_err()
    };
    let index = ErasureError::ShardIndex { index: 3, shards: 3 };
    assert_eq!(reconstruct(&[(0, b"a"), (3, b"b")], 1, 1), index);
    assert_eq!(reconstruct(&[(0, b"a"), (1, b"b")], 3, 1), index);
    assert_eq!(reconstruct(&[(0, b"a"), (0, b"b")], 1, 1), ErasureError::ShardRepeated { index: 0 });
    assert_eq!(reconstruct(&[(0, b"a"), (1, b"b")], 1, 1), ErasureError::ShardRepeated { index: 1 });
    assert_eq!(reconstruct(&[(0, b"a")], 1, 1), ErasureError::TooFewShards { given: 1, needed: 2 });
    assert_eq!(reconstruct(&[(0, b"a"), (2, b"b")], 1, 2), odd);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_loss_of_at_most_m_shards_is_rebuilt(
        data in 1usize..=20,
        parity in 0usize..=16,
        len in 0usize..700,
        seed: u64,
        lost in 0usize..=16,
    ) {
        let codec = Codec::new(geometry(data, parity));
        let shards = encoded(&codec, seed, len);
        let mut order: Vec<usize> = (0..data + parity).collect();
        order.shuffle(&mut SmallRng::seed_from_u64(seed));
        let (lost, present) = order.split_at(lost.min(parity));
        assert_rebuilds(&codec, &shards, present, lost);
    }

    #[test]
    fn checksums_on_the_way_are_those_of_passes_of_their_own(
        data in 1usize..=20,
        parity in 0usize..=16,
        len in 0usize..700,
        block_bytes in 1usize..=300,
        seed: u64,
    ) {
        let codec = Codec::new(geometry(data, parity));
        let shards = encoded(&codec, seed, len);
        let mut rng = SmallRng::seed_from_u64(seed);
        let own_bytes: Vec<usize> = (0..data).map(|_| rng.random_range(0..=len)).collect();
        let mut own = own_bytes.clone();
        own.resize(data + parity, len);
        let expected: Vec<Vec<u64>> =
            shards.iter().zip(own).map(|(shard, own)| shard[..own].chunks(block_bytes).map(crc64).collect()).collect();

        let (sources, parities) = shards.split_at(data);
        let sources: Vec<&[u8]> = sources.iter().map(Vec::as_slice).collect();
        let mut found = vec![vec![0xee; len]; parity];
        let mut outputs: Vec<&mut [u8]> = found.iter_mut().map(Vec::as_mut_slice).collect();
        let block = NonZeroUsize::new(block_bytes).unwrap();
        let crcs = codec.encode_with_crcs(&sources, &mut outputs, &own_bytes, block).unwrap();
        prop_assert_eq!(found, parities);
        prop_assert_eq!(crcs, expected);
    }
}
