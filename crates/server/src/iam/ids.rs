//! Ids, access keys and secrets: made from the kernel's randomness.

use gabion_platform::Entropy;

/// Letters and digits that are hard to take for one another, as AWS's ids have; 32, so that no letter is likelier than another.
const UPPER: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
const MIXED: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
/// Characters of an id behind its four letters: 85 bits.
const ID_CHARACTERS: usize = 17;
/// Characters of an access key behind its four letters: 80 bits.
const ACCESS_KEY_CHARACTERS: usize = 16;
/// Characters of a secret: 240 bits.
const SECRET_CHARACTERS: usize = 40;
/// What access keys of temporary credentials begin with.
const TEMPORARY: &str = "ASIA";

fn text(entropy: &dyn Entropy, alphabet: &[u8], characters: usize) -> String {
    let mut random = vec![0; characters];
    entropy.fill(&mut random);
    random.iter().map(|&byte| char::from(alphabet[usize::from(byte) % alphabet.len()])).collect()
}

/// An id: `AIDA…` of a user, `AGPA…` of a group, `AROA…` of a role, `ANPA…` of a policy.
pub(super) fn entity(entropy: &dyn Entropy, letters: &str) -> String {
    format!("{letters}{}", text(entropy, UPPER, ID_CHARACTERS))
}

/// An access key that lasts.
pub(super) fn access_key(entropy: &dyn Entropy) -> String {
    format!("AKIA{}", text(entropy, UPPER, ACCESS_KEY_CHARACTERS))
}

/// An access key of temporary credentials.
pub(super) fn temporary(entropy: &dyn Entropy) -> String {
    format!("{TEMPORARY}{}", text(entropy, UPPER, ACCESS_KEY_CHARACTERS))
}

pub(super) fn is_temporary(access_key: &str) -> bool {
    access_key
        .strip_prefix(TEMPORARY)
        .is_some_and(|rest| rest.len() == ACCESS_KEY_CHARACTERS && rest.bytes().all(|byte| UPPER.contains(&byte)))
}

/// A secret.
pub(super) fn secret(entropy: &dyn Entropy) -> String {
    text(entropy, MIXED, SECRET_CHARACTERS)
}

/// Twelve digits of a new account; not the first nine billion alone, and not beginning with a zero, which people drop.
pub(super) fn account(entropy: &dyn Entropy) -> String {
    let mut random = [0; 8];
    entropy.fill(&mut random);
    format!("{}", 100_000_000_000 + u64::from_le_bytes(random) % 900_000_000_000)
}

/// The canonical id of a new account.
pub(super) fn canonical(entropy: &dyn Entropy) -> String {
    let mut random = [0; 32];
    entropy.fill(&mut random);
    hex::encode(random)
}

#[cfg(test)]
mod tests {
    use gabion_platform::SeededEntropy;

    use super::*;

    #[test]
    fn ids_have_the_forms_of_awss() {
        let entropy = SeededEntropy::new(1);
        assert_eq!(entity(&entropy, "AIDA").len(), 21);
        let key = access_key(&entropy);
        assert!(key.len() == 20 && key.starts_with("AKIA") && !is_temporary(&key));
        let key = temporary(&entropy);
        assert!(
            key.len() == 20 && is_temporary(&key) && !is_temporary(&key[..19]) && !is_temporary("ASIAabcdefghijklmnop")
        );
        assert_eq!(secret(&entropy).len(), 40);
        assert_eq!(canonical(&entropy).len(), 64);
        for _ in 0..100 {
            let id = account(&entropy);
            assert!(id.len() == 12 && id.bytes().all(|digit| digit.is_ascii_digit()) && !id.starts_with('0'));
        }
    }
}
