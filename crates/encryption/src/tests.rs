//! Laws of the codec: what is sealed comes back, in any range; nothing else does.

use proptest::prelude::*;

use super::*;

fn key(seed: u8) -> SecretKey {
    SecretKey::filled(|bytes| bytes.iter_mut().zip(0_u8..).for_each(|(byte, i)| *byte = seed ^ i))
}

fn frames(frame_bytes: u32) -> Frames {
    Frames::new(frame_bytes).unwrap()
}

/// The frames of a body that comes in pieces.
fn sealed(
    data_key: &SecretKey,
    body: &[u8],
    piece: usize,
    salt: BodySalt,
    part_number: u16,
    size: Frames,
) -> Vec<Vec<u8>> {
    let mut sealer = Sealer::new(data_key, &salt, part_number, size, Some(body.len() as u64));
    let mut out = Vec::new();
    for mut bytes in body.chunks(piece) {
        while !bytes.is_empty() {
            out.extend(sealer.take(&mut bytes));
        }
    }
    out.extend(sealer.finish());
    out
}

/// Opens frames that come in pieces.
fn opened(opener: &mut Opener, sealed: &[u8], piece: usize) -> Result<Vec<u8>, Tampered> {
    let mut out = Vec::new();
    for mut bytes in sealed.chunks(piece) {
        while !bytes.is_empty() {
            out.extend(opener.take(&mut bytes)?.into_iter().flatten());
        }
    }
    if opener.is_done() { Ok(out) } else { Err(Tampered) }
}

fn whole(len: usize, salt: BodySalt, part_number: u16) -> BodyRange {
    BodyRange { salt, part_number, len: len as u64, start: 0, end: len as u64 }
}

proptest! {
    #[test]
    fn any_range_is_that_of_the_plain_bodies(
        lens in prop::collection::vec(0_usize..300, 1..5), frame_bytes in 1_u32..100, pieces in [1_usize..400, 1..400],
        ends in any::<[prop::sample::Index; 2]>(),
    ) {
        let (size, data_key) = (frames(frame_bytes), key(1));
        let bodies: Vec<Vec<u8>> = lens.iter().zip(0_u8..).map(|(&len, n)| (0..len).map(|i| i as u8 ^ (n << 5)).collect()).collect();
        let plain = bodies.concat();
        prop_assume!(!plain.is_empty());
        let (a, b) = (ends[0].index(plain.len()), ends[1].index(plain.len()));
        let (first, end) = (a.min(b) as u64, a.max(b) as u64 + 1);

        let (mut stored, mut ranges, mut at, mut from, mut to) = (Vec::new(), Vec::new(), 0, None, 0);
        for (body, number) in bodies.iter().zip(1_u16..) {
            let (salt, len) = ([number as u8; 16], body.len() as u64);
            let sealed = sealed(&data_key, body, pieces[0], salt, number, size).concat();
            prop_assert_eq!(sealed.len() as u64, size.sealed_len(len));
            let (start, end) = (first.clamp(at, at + len) - at, end.clamp(at, at + len) - at);
            if start < end {
                let located = size.locate(len, start, end);
                from.get_or_insert(stored.len() + located.start as usize);
                to = stored.len() + located.end as usize;
                ranges.push(BodyRange { salt, part_number: number, len, start, end });
            }
            stored.extend(sealed);
            at += len;
        }
        let mut opener = Opener::new(data_key, size, ranges);
        let got = opened(&mut opener, &stored[from.unwrap()..to], pieces[1]).unwrap();
        prop_assert_eq!(&got[..], &plain[first as usize..end as usize]);
    }

    #[test]
    fn nothing_else_is_opened(len in 1_usize..300, frame_bytes in 1_u32..60, what in 0..8, at in any::<prop::sample::Index>(), bit in 0_u32..8) {
        let (size, data_key, salt) = (frames(frame_bytes), key(1), [7; 16]);
        let body: Vec<u8> = (0..len).map(|i| i as u8).collect();
        let mut frames = sealed(&data_key, &body, 37, salt, 3, size);
        let at = at.index(frames.len());
        let mut range = whole(len, salt, 3);
        let mut opening = data_key.clone();
        match what {
            0 => { let byte = bit as usize % frames[at].len(); frames[at][byte] ^= 1 << bit; }
            1 => { let last = frames[at].len() - 1; frames[at][last] ^= 1 << bit; }
            2 => { frames.remove(at); }
            3 => { let frame = frames[at].clone(); frames.insert(at, frame); }
            4 => {
                // Two frames change places, or a body is cut at a frame's end and says that it is shorter.
                if at + 1 < frames.len() {
                    frames.swap(at, at + 1);
                } else if at > 0 {
                    frames.pop();
                    range.len = at as u64 * u64::from(frame_bytes);
                    range.end = range.len;
                } else {
                    opening = key(2);
                }
            }
            5 => range.salt = [8; 16],
            6 => range.part_number = 4,
            // The same data key, frame and place, of another body.
            _ => { frames[at] = sealed(&data_key, &body, 37, [9; 16], 3, size)[at].clone(); }
        }
        let mut opener = Opener::new(opening, size, [range]);
        prop_assert!(opened(&mut opener, &frames.concat(), 50).is_err());
    }

    #[test]
    fn a_wrapped_key_opens_for_its_purpose_only(flip in 0..WRAPPED_BYTES, bit in 0_u32..8, cut in 0..WRAPPED_BYTES) {
        let (outer, inner) = (key(1), key(2));
        let wrapped = outer.wrap(&inner, b"bucket/key", &[5; 32]);
        prop_assert_eq!(wrapped.len(), WRAPPED_BYTES);
        let opened = outer.unwrap(&wrapped, b"bucket/key").unwrap();
        prop_assert_eq!(opened.expose(), inner.expose());
        prop_assert_eq!(outer.unwrap(&wrapped, b"bucket/kez").unwrap_err(), WrongKey);
        prop_assert_eq!(key(3).unwrap(&wrapped, b"bucket/key").unwrap_err(), WrongKey);
        prop_assert_eq!(outer.unwrap(&wrapped[..cut], b"bucket/key").unwrap_err(), WrongKey);
        let mut flipped = wrapped;
        flipped[flip] ^= 1 << bit;
        prop_assert_eq!(outer.unwrap(&flipped, b"bucket/key").unwrap_err(), WrongKey);
    }
}

#[test]
fn a_body_without_bytes_has_no_frames() {
    assert!(sealed(&key(1), b"", 1, [0; 16], 0, Frames::USUAL).is_empty());
    assert_eq!((Frames::USUAL.count(0), Frames::USUAL.sealed_len(0)), (0, 0));
    assert!(Opener::new(key(1), Frames::USUAL, [whole(0, [0; 16], 0)]).is_done());
}

#[test]
fn frames_have_a_sensible_size() {
    assert!(Frames::new(0).is_none() && Frames::new(u32::MAX).is_none());
    assert_eq!(Frames::new(65_536), Some(Frames::USUAL));
    assert_eq!(Frames::USUAL.sealed_len(65_537), 65_537 + 32);
}

/// What is stored is read for ever: neither derivation nor framing may change.
#[test]
fn sealed_bytes_are_for_ever() {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let frames = sealed(&key(0), b"for ever", 8, [1; 16], 2, frames(5));
    assert_eq!(
        hex(&frames.concat()),
        "be853443cc6fe404e97045fc2a8440818237d73e7677219048ab60bf5d7df7fb7ff1545caaf47fb4"
    );
    assert_eq!(
        hex(&key(0).wrap(&key(1), b"x", &[2; 32])[32..]),
        "ae1bb45f86033abffde9daf338ad319147bf56675959480dac4e0c3dea8c81bdd77e91e3b9f74293118cbb9f380987f7"
    );
}

#[test]
fn tags_tell_bodies_and_keys_apart() {
    let tag = |seed, digests: &[&[u8]]| key(seed).tag(digests.iter().copied());
    let all = [tag(1, &[b"ab", b"c"]), tag(1, &[b"a", b"bc"]), tag(1, &[b"abc"]), tag(1, &[]), tag(2, &[b"ab", b"c"])];
    assert!((0..all.len()).all(|i| all[..i].iter().all(|other| *other != all[i])));
    assert_eq!(tag(1, &[b"ab", b"c"]), all[0]);
}

#[test]
fn secrets_are_not_shown() {
    assert_eq!(format!("{:?}", key(9)), "SecretKey");
    assert!(SecretKey::from_slice(&[0; 31]).is_none() && SecretKey::from_slice(&[0; 33]).is_none());
}
