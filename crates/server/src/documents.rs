//! Memory for documents on their way. Their senders may take their time over them, so that what all of them may have sent is bounded, and so is the time.
//!
//! No account keeps another out: where there is no memory left, those that have more of it than one that wants some make room, first what comes slowly, then what began last, of which least is
//! lost. So an account may have all of it while nobody else wants any, and each of many has an equal part, whoever came first. Forms and anonymous requests do not say for sure whose they
//! are: there only what comes slowly makes room for what comes later, and of forms, which are short, whatever came first.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// Bytes that may be there of documents whose senders are known.
const KNOWN_BYTES_MAX: usize = 64 << 20;
/// Bytes that may be there of others: a share of their own, so that they keep nobody else's waiting.
const OTHER_BYTES_MAX: usize = 16 << 20;
const UNIT_BYTES: usize = 4096;
/// Longest time that a document may take: 4 MiB at 35 kB/s.
const DOCUMENT_TIME_MAX: Duration = Duration::from_secs(120);
/// What has been coming for less is not slow (4 MiB at 420 kB/s): of the same account it stays. Many that come at once would push each other out before any is there.
const PATIENCE: Duration = Duration::from_secs(10);

/// Who sends a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender<'a> {
    /// Somebody of the account with this id.
    Known(&'a str),
    /// Nobody in particular.
    Anonymous,
    /// Somebody who asks IAM or STS: who that is says a signature of the whole.
    OfForm,
}

/// Why a document is waited for no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It takes too long.
    TooLate,
    /// There is no memory for it, or what it had is another's.
    NoRoom,
}

/// What is left of it.
#[derive(Clone)]
pub(crate) struct DocumentMemory {
    known: Arc<Share>,
    anonymous: Arc<Share>,
    of_forms: Arc<Share>,
}

impl Default for DocumentMemory {
    fn default() -> Self {
        Self {
            known: Share::new(KNOWN_BYTES_MAX, PATIENCE),
            anonymous: Share::new(OTHER_BYTES_MAX, PATIENCE),
            // They are short: one that comes slowly is somebody's who means to be in the way.
            of_forms: Share::new(OTHER_BYTES_MAX, Duration::ZERO),
        }
    }
}

impl DocumentMemory {
    /// A document begins to come.
    pub(crate) fn begin(&self, sender: Sender<'_>) -> Coming {
        let (share, account) = match sender {
            Sender::Known(account) => (&self.known, account),
            Sender::Anonymous => (&self.anonymous, ""),
            Sender::OfForm => (&self.of_forms, ""),
        };
        let (begun, bytes) = (Instant::now(), Mutex::new(Some(BytesMut::new())));
        Coming {
            share: Arc::clone(share),
            account: account.into(),
            place: None,
            received_bytes: 0,
            document: Arc::new(Document { begun, bytes, pushed_out: Notify::new() }),
        }
    }
}

/// A document on its way, and the memory for what is there of it.
pub(crate) struct Coming {
    share: Arc<Share>,
    account: Arc<str>,
    /// Where it stands among its account's, once something of it is there.
    place: Option<u64>,
    received_bytes: usize,
    document: Arc<Document>,
}

impl Coming {
    /// Takes what came of it, if there is memory for so much.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<(), Ended> {
        let units = |bytes: usize| bytes.div_ceil(UNIT_BYTES);
        let more = units(self.received_bytes + bytes.len()) - units(self.received_bytes);
        if more > 0 {
            let place = self.share.table.lock().grow(self, more)?;
            self.place = Some(place);
        }
        self.document.bytes.lock().as_mut().ok_or(Ended::NoRoom)?.extend_from_slice(bytes);
        self.received_bytes += bytes.len();
        Ok(())
    }

    /// Its bytes so far.
    pub(crate) fn received_bytes(&self) -> usize {
        self.received_bytes
    }

    /// What comes next of it.
    ///
    /// # Errors
    /// When the document takes too long, or has to make room.
    pub(crate) async fn in_time<T>(&self, next: impl Future<Output = T>) -> Result<T, Ended> {
        tokio::select! {
            // What is there already needs no waiting.
            biased;
            next = timeout_at(self.document.begun + DOCUMENT_TIME_MAX, next) => next.map_err(|_| Ended::TooLate),
            () = self.document.pushed_out.notified() => Err(Ended::NoRoom),
        }
    }

    /// All of it. It makes room no longer, and is counted until this goes.
    ///
    /// # Errors
    /// When it had to make room.
    pub(crate) fn whole(&mut self) -> Result<BytesMut, Ended> {
        if let Some(place) = self.place {
            self.share.table.lock().settle(&self.account, place);
        }
        self.document.bytes.lock().take().ok_or(Ended::NoRoom)
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.share.table.lock().remove(&self.account, place);
        }
    }
}

/// What is there of a document.
struct Document {
    begun: Instant,
    /// Nothing once others have its memory. Locked after the table, where both are.
    bytes: Mutex<Option<BytesMut>>,
    pushed_out: Notify,
}

/// Memory for documents of one kind.
struct Share {
    /// How long a document may take before it counts as slow.
    patience: Duration,
    table: Mutex<Table>,
}

/// Who has how much of it: as many entries as there are documents on their way of which something is there.
struct Table {
    free_units: usize,
    next_place: u64,
    accounts: HashMap<Arc<str>, Account>,
}

#[derive(Default)]
struct Account {
    units: usize,
    /// In the order in which they began to come.
    documents: BTreeMap<u64, Entry>,
}

struct Entry {
    units: usize,
    /// Nothing once it is whole.
    coming: Option<Arc<Document>>,
}

impl Share {
    fn new(bytes_max: usize, patience: Duration) -> Arc<Self> {
        let table = Table { free_units: bytes_max / UNIT_BYTES, next_place: 0, accounts: HashMap::new() };
        Arc::new(Self { patience, table: Mutex::new(table) })
    }
}

impl Account {
    /// Its documents on their way that are not whole, the oldest first.
    fn coming(&self) -> impl Iterator<Item = (u64, &Entry)> {
        self.documents.iter().filter(|(_, entry)| entry.coming.is_some()).map(|(place, entry)| (*place, entry))
    }

    /// Those of them that come slowly, but for the one that wants more.
    fn slow(&self, wants: &Coming) -> impl Iterator<Item = (u64, &Entry)> {
        let is_slow = |entry: &Entry| {
            entry.coming.as_ref().is_some_and(|document| {
                !Arc::ptr_eq(document, &wants.document) && document.begun.elapsed() >= wants.share.patience
            })
        };
        self.coming().filter(move |(_, entry)| is_slow(entry))
    }
}

impl Table {
    /// Gives so many units more to a document. Returns its place.
    fn grow(&mut self, coming: &Coming, more: usize) -> Result<u64, Ended> {
        if coming.place.is_some_and(|place| !self.has(&coming.account, place)) {
            return Err(Ended::NoRoom);
        }
        if self.free_units < more {
            self.make_room(coming, more)?;
        }
        let account = self.accounts.entry(Arc::clone(&coming.account)).or_default();
        let place = coming.place.unwrap_or_else(|| {
            self.next_place += 1;
            self.next_place
        });
        let new = || Entry { units: 0, coming: Some(Arc::clone(&coming.document)) };
        let entry = account.documents.entry(place).or_insert_with(new);
        entry.units += more;
        account.units += more;
        self.free_units -= more;
        Ok(place)
    }

    /// Takes the memory of others for one that is to have so many units more; of none if that is not enough.
    fn make_room(&mut self, coming: &Coming, more: usize) -> Result<(), Ended> {
        let own = self.accounts.get(&coming.account).map_or(0, |account| account.units) + more;
        let to_spare = |(id, account): (&Arc<str>, &Account)| match *id == coming.account {
            true => account.slow(coming).map(|(_, entry)| entry.units).sum(),
            false => {
                account.coming().map(|(_, entry)| entry.units).sum::<usize>().min(account.units.saturating_sub(own))
            }
        };
        if self.free_units + self.accounts.iter().map(to_spare).sum::<usize>() < more {
            return Err(Ended::NoRoom);
        }
        while self.free_units < more {
            let others = self.accounts.iter().filter(|(id, account)| **id != coming.account && account.units > own);
            let largest = others
                .filter(|(_, account)| account.coming().next().is_some())
                .max_by_key(|(_, account)| account.units);
            let (id, place) = match largest {
                Some((id, account)) => {
                    let newest = || account.coming().last().map(|(place, _)| place);
                    (Arc::clone(id), account.slow(coming).next().map(|(place, _)| place).or_else(newest))
                }
                None => {
                    let account = self.accounts.get(&coming.account);
                    let slow = account.and_then(|account| account.slow(coming).next());
                    (Arc::clone(&coming.account), slow.map(|(place, _)| place))
                }
            };
            self.push_out(&id, place.ok_or(Ended::NoRoom)?);
        }
        Ok(())
    }

    /// Ends a document that is on its way.
    fn push_out(&mut self, id: &str, place: u64) {
        let entry = self.accounts.get(id).and_then(|account| account.documents.get(&place));
        let document = entry.and_then(|entry| entry.coming.clone());
        self.remove(id, place);
        if let Some(document) = document {
            *document.bytes.lock() = None;
            document.pushed_out.notify_one();
        }
    }

    fn has(&self, account: &str, place: u64) -> bool {
        self.accounts.get(account).is_some_and(|account| account.documents.contains_key(&place))
    }

    fn settle(&mut self, account: &str, place: u64) {
        let entry = self.accounts.get_mut(account).and_then(|account| account.documents.get_mut(&place));
        if let Some(entry) = entry {
            entry.coming = None;
        }
    }

    fn remove(&mut self, id: &str, place: u64) {
        let Some(account) = self.accounts.get_mut(id) else { return };
        let Some(entry) = account.documents.remove(&place) else { return };
        account.units -= entry.units;
        self.free_units += entry.units;
        if account.documents.is_empty() {
            self.accounts.remove(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    /// Documents on their way of which so much is there, or was refused.
    fn begun<const N: usize>(memory: &DocumentMemory, sender: Sender<'_>, bytes: usize) -> [(Coming, bool); N] {
        std::array::from_fn(|_| {
            let mut coming = memory.begin(sender);
            let is_taken = coming.take(&vec![0; bytes]).is_ok();
            (coming, is_taken)
        })
    }

    /// How many of them are not lost.
    async fn count<const N: usize>(documents: &mut [(Coming, bool); N]) -> usize {
        let mut count = 0;
        for (coming, is_taken) in documents {
            let is_waited_for = coming.in_time(std::future::ready(())).await.is_ok();
            count += usize::from(*is_taken && is_waited_for && coming.document.bytes.lock().is_some());
        }
        count
    }

    fn free_bytes(share: &Share) -> usize {
        share.table.lock().free_units * UNIT_BYTES
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_there_counts_and_each_kind_has_its_share() {
        let memory = DocumentMemory::default();
        for (sender, share, bytes_max) in [
            (Sender::Known("a"), &memory.known, KNOWN_BYTES_MAX),
            (Sender::Anonymous, &memory.anonymous, OTHER_BYTES_MAX),
            (Sender::OfForm, &memory.of_forms, OTHER_BYTES_MAX),
        ] {
            let mut coming = memory.begin(sender);
            assert_eq!((coming.take(&[]), free_bytes(share)), (Ok(()), bytes_max), "nothing is taken in advance");
            for bytes in [1, UNIT_BYTES - 1, 1] {
                assert_eq!(coming.take(&vec![7; bytes]), Ok(()));
            }
            assert_eq!(free_bytes(share), bytes_max - 2 * UNIT_BYTES);
            assert_eq!(coming.whole().unwrap(), vec![7; UNIT_BYTES + 1]);
            assert_eq!(free_bytes(share), bytes_max - 2 * UNIT_BYTES, "it is still there");
            drop(coming);
            assert!(free_bytes(share) == bytes_max && share.table.lock().accounts.is_empty());
        }
    }

    /// A tenant that sends slowly had all of it, for two minutes.
    #[tokio::test(start_paused = true)]
    async fn an_account_has_all_only_while_nobody_else_wants_any() {
        let memory = DocumentMemory::default();
        let mut of_a = begun::<17>(&memory, Sender::Known("a"), 4 * MIB);
        assert_eq!(count(&mut of_a).await, 16, "what came at once does not push itself out");
        let mut small = begun::<1>(&memory, Sender::Known("b"), 1);
        assert_eq!((count(&mut small).await, count(&mut of_a).await), (1, 15));
        assert_eq!(
            of_a[15].0.in_time(std::future::pending::<()>()).await,
            Err(Ended::NoRoom),
            "of which least is lost"
        );
        drop(small);
        assert_eq!(of_a[15].0.take(&[0]), Err(Ended::NoRoom));
        assert_eq!(count(&mut of_a).await, 15, "what is lost takes nobody's");
        let mut of_b = begun::<17>(&memory, Sender::Known("b"), 4 * MIB);
        assert_eq!((count(&mut of_b).await, count(&mut of_a).await), (8, 8), "half");
        let mut of_c = begun::<17>(&memory, Sender::Known("c"), 4 * MIB);
        let mut left = [count(&mut of_a).await, count(&mut of_b).await, count(&mut of_c).await];
        left.sort_unstable();
        assert_eq!((left, free_bytes(&memory.known)), ([5, 5, 6], 0), "a third");
        drop((of_b, of_c));
        let mut lost = memory.begin(Sender::Known("d"));
        assert_eq!(lost.take(&[0]), Ok(()));
        memory.known.table.lock().remove("d", lost.place.unwrap());
        assert_eq!(lost.take(&[0; UNIT_BYTES]), Err(Ended::NoRoom));
        drop(of_a);
        assert!(free_bytes(&memory.known) == KNOWN_BYTES_MAX && memory.known.table.lock().accounts.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_slowly_makes_room_for_its_own_account_too() {
        let memory = DocumentMemory::default();
        let mut slow = begun::<16>(&memory, Sender::Known("a"), 4 * MIB);
        tokio::time::sleep(PATIENCE).await;
        let mut late = begun::<2>(&memory, Sender::Known("a"), 4 * MIB);
        assert_eq!((count(&mut late).await, count(&mut slow).await), (2, 14));
        assert_eq!(slow[2].0.take(&[0]), Ok(()), "the oldest itself wants more: the next goes");
        assert_eq!(slow[3].0.take(&[0]), Err(Ended::NoRoom));
        assert_eq!(slow[1].0.take(&[0]), Err(Ended::NoRoom), "it is lost already");
        for slow in &mut slow[4..] {
            assert_eq!(slow.0.whole().unwrap().len(), 4 * MIB);
        }
        let mut next = begun::<3>(&memory, Sender::Known("a"), 4 * MIB);
        assert_eq!((count(&mut next).await, slow[2].0.whole().is_err()), (2, true), "what is whole stays");
    }

    /// Others that have as much, or whose documents are whole, give up none in vain, and who has more of those that come does.
    #[tokio::test(start_paused = true)]
    async fn nothing_goes_in_vain() {
        let memory = DocumentMemory::default();
        let mut whole = begun::<9>(&memory, Sender::Known("whole"), 4 * MIB);
        whole.iter_mut().for_each(|document| drop(document.0.whole().unwrap()));
        let mut of_a = begun::<6>(&memory, Sender::Known("a"), 4 * MIB);
        let mut of_b = begun::<1>(&memory, Sender::Known("b"), 4 * MIB);
        assert_eq!((count(&mut of_a).await, count(&mut of_b).await, free_bytes(&memory.known)), (6, 1, 0));
        let mut of_c = begun::<1>(&memory, Sender::Known("c"), 2 * MIB);
        assert_eq!((count(&mut of_a).await, count(&mut of_b).await, count(&mut of_c).await), (5, 1, 1));
        // The largest has nothing more to give, nor has anybody so much more than this one would have.
        let mut too_much = begun::<1>(&memory, Sender::Known("d"), 21 * MIB);
        assert_eq!((count(&mut too_much).await, count(&mut of_a).await, count(&mut of_b).await), (0, 5, 1));
    }

    /// Clients that nobody knows had all of it, and administrators could not sign in.
    #[tokio::test(start_paused = true)]
    async fn a_form_that_is_there_at_once_finds_room() {
        let memory = DocumentMemory::default();
        let mut slow = begun::<40>(&memory, Sender::OfForm, MIB / 2);
        assert_eq!(count(&mut slow).await, 32, "the first eight went");
        let mut form = memory.begin(Sender::OfForm);
        assert_eq!((form.take(b"Action=ListUsers"), form.whole().unwrap().len()), (Ok(()), 16));
        assert_eq!((count(&mut slow).await, slow[39].0.take(&vec![0; MIB / 4])), (31, Ok(())));
    }

    #[tokio::test(start_paused = true)]
    async fn a_document_has_to_be_there_in_time() {
        let coming = DocumentMemory::default().begin(Sender::Known("a"));
        assert!(coming.in_time(tokio::time::sleep(DOCUMENT_TIME_MAX / 2)).await.is_ok());
        assert_eq!(coming.in_time(tokio::time::sleep(DOCUMENT_TIME_MAX)).await, Err(Ended::TooLate));
    }
}
