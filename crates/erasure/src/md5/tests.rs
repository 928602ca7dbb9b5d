//! Every kernel against the crate `md-5`.

use md5::Digest;
use proptest::prelude::*;

use super::*;

fn oracle(bytes: &[u8]) -> [u8; 16] {
    md5::Md5::digest(bytes).into()
}

fn bytes(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(31).wrapping_add(seed * 131) >> 3) as u8).collect()
}

#[test]
fn known_answers() {
    // RFC 1321, A.5.
    for (text, digest) in [
        ("", "d41d8cd98f00b204e9800998ecf8427e"),
        ("abc", "900150983cd24fb0d6963f7d28e17f72"),
        ("message digest", "f96b697d7cb7938d525a2f31aaf161d0"),
        (
            "12345678901234567890123456789012345678901234567890123456789012345678901234567890",
            "57edf4a22be3c955ac49da2e2107b67a",
        ),
    ] {
        let mut md5 = Md5::default();
        md5.update(text.as_bytes());
        assert_eq!(hex::encode(md5.finish()), digest, "{text}");
    }
}

#[test]
fn all_lengths_around_blocks() {
    for kernel in available() {
        for len in (0..=200).chain([1000, 4096, 65_536 + 1]) {
            let bytes = bytes(len, len);
            let mut md5 = Md5::default();
            Md5::update_many_with(*kernel, &mut [(&mut md5, &bytes)]);
            assert_eq!(md5.finish(), oracle(&bytes), "{} {len}", kernel.name());
        }
    }
}

#[test]
fn many_end_at_once_as_each_does_alone() {
    for streams in [0, 1, 2, 15, 16, 17, 40] {
        // With ends on both sides of where the padding takes a second block.
        let bodies: Vec<Vec<u8>> = (0..streams).map(|at| bytes(at, 50 + at)).collect();
        let mut md5s = vec![Md5::default(); streams];
        md5s.iter_mut().zip(&bodies).for_each(|(md5, body)| md5.update(body));
        let expected: Vec<_> = bodies.iter().map(|body| oracle(body)).collect();
        assert_eq!(Md5::finish_many(&md5s).collect::<Vec<_>>(), expected, "{streams}");
    }
}

#[test]
fn any_number_of_streams() {
    for kernel in available() {
        for streams in 1..=40 {
            let bodies: Vec<Vec<u8>> = (0..streams).map(|at| bytes(at, 100 + at * 37 % 300)).collect();
            let mut md5s = vec![Md5::default(); streams];
            let mut pairs: Vec<_> = md5s.iter_mut().zip(&bodies).map(|(md5, body)| (md5, &body[..])).collect();
            Md5::update_many_with(*kernel, &mut pairs);
            for (md5, body) in md5s.into_iter().zip(&bodies) {
                assert_eq!(md5.finish(), oracle(body), "{} {streams}", kernel.name());
            }
        }
    }
}

proptest! {
    #[test]
    fn streams_in_pieces(pieces in prop::collection::vec((0_usize..20, 0_usize..400), 0..60)) {
        for kernel in available() {
            let mut bodies = vec![Vec::new(); 20];
            let mut md5s = vec![Md5::default(); 20];
            // As many pieces at once as are of different streams.
            for group in pieces.chunks(7) {
                let mut parts: Vec<Vec<u8>> = vec![Vec::new(); 20];
                for &(stream, len) in group {
                    parts[stream] = bytes(stream + len, len);
                }
                let mut pairs: Vec<_> =
                    md5s.iter_mut().zip(&parts).filter(|(_, part)| !part.is_empty()).map(|(md5, part)| (md5, &part[..])).collect();
                Md5::update_many_with(*kernel, &mut pairs);
                for (body, part) in bodies.iter_mut().zip(&parts) {
                    body.extend_from_slice(part);
                }
            }
            for (md5, body) in md5s.into_iter().zip(&bodies) {
                prop_assert_eq!(md5.finish(), oracle(body), "{}", kernel.name());
            }
        }
    }
}
