//! What the fuzz targets call.

use gabion_types::DeploymentId;

use crate::{
    mutation::Mutation,
    snapshot::stream::{Decoder, Encoder},
};

/// A mutation, as it lies in the log.
///
/// # Panics
/// When what was decoded is not encoded to the same again.
pub fn mutation(bytes: &[u8]) {
    if let Ok(mutation) = Mutation::decode(bytes) {
        assert_eq!(Mutation::decode(&mutation.encode()).as_ref(), Ok(&mutation));
    }
}

/// The rows of a snapshot of the index behind a good beginning; the first byte says in what pieces they come. A good end is put behind them,
/// too: no fuzzer would guess it.
///
/// # Panics
/// When rows that were read are not written as they came.
pub fn index_snapshot(bytes: &[u8]) {
    let Some((&piece_bytes, rows)) = bytes.split_first() else { return };
    let deployment = DeploymentId::from_u128(7);
    let (mut encoder, begin) = Encoder::new(deployment);
    let mut decoder = Decoder::new(deployment);
    let mut again = begin.clone();
    for piece in [&begin[..], rows].concat().chunks(usize::from(piece_bytes) + 1) {
        decoder.push(piece);
        loop {
            match decoder.next() {
                Ok(Some(entry)) => encoder.put(entry.table, &entry.key, &entry.row, &mut again),
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
    if again.len() == begin.len() + rows.len() {
        assert_eq!(again[begin.len()..], *rows);
        let count = encoder.rows();
        decoder.push(&encoder.finish());
        assert_eq!(decoder.next(), Ok(None));
        assert_eq!(decoder.finish(), Ok(count));
    }
}
