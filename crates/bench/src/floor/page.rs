//! A page of a listing as long as a server's, of objects that are nowhere.

use bytes::Bytes;

use super::{FloorArgs, endpoint::PREFIX, endpoint::READ_FOLDER};
use crate::{driver::run_folder, workload::LISTED_MAX};

/// What a server says before the keys and behind them.
const FRAME_BEGIN: &str =
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">";
const FRAME_END: &str = "</ListBucketResult>";

/// The first page of the objects that endpoints have to be read: all of them, if they are no more than a page holds.
pub(super) fn page(args: &FloorArgs) -> Bytes {
    let prefix = format!("{PREFIX}{}{READ_FOLDER}", run_folder());
    let count = args.objects().min(LISTED_MAX.into());
    let mut out = format!(
        "{FRAME_BEGIN}<Name>{}</Name><Prefix>{prefix}</Prefix><KeyCount>{count}</KeyCount><MaxKeys>{LISTED_MAX}</MaxKeys><IsTruncated>false</IsTruncated>",
        args.bucket
    );
    for index in 0..count {
        out += &format!(
            "<Contents><Key>{prefix}{index:010}</Key><LastModified>2026-01-31T23:59:59.000Z</LastModified>\
             <ETag>&quot;{index:032x}&quot;</ETag><ChecksumAlgorithm>CRC64NVME</ChecksumAlgorithm><ChecksumType>FULL_OBJECT</ChecksumType>\
             <Size>{}</Size><StorageClass>STANDARD</StorageClass></Contents>",
            args.size
        );
    }
    (out + FRAME_END).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{floor::cli::tests::args, xml::elements};

    /// What this server answered for one object of 4 KiB.
    const ANSWER: &str = concat!(
        r#"<?xml version="1.0" encoding="UTF-8"?>"#,
        "\n",
        r#"<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>gabion-bench</Name>"#,
        "<Prefix>floor/12345678-0123456789abcdef/read/</Prefix><KeyCount>1</KeyCount><MaxKeys>1000</MaxKeys>",
        "<IsTruncated>false</IsTruncated><Contents><Key>floor/12345678-0123456789abcdef/read/0000000000</Key>",
        "<LastModified>2026-11-27T05:31:13.000Z</LastModified>",
        "<ETag>&quot;20439f79e4e9dc95be34b21029221f80&quot;</ETag><ChecksumAlgorithm>CRC64NVME</ChecksumAlgorithm>",
        "<ChecksumType>FULL_OBJECT</ChecksumType><Size>4096</Size><StorageClass>STANDARD</StorageClass></Contents>",
        "</ListBucketResult>"
    );

    #[test]
    fn a_page_is_as_long_as_a_servers() {
        let page = |objects: &str| page(&args(&["--objects", objects]));
        assert_eq!(page("1").len(), ANSWER.len());
        for (objects, keys) in [("7", 7), ("1000", 1000), ("5000", 1000)] {
            let page = String::from_utf8(page(objects).to_vec()).unwrap();
            assert_eq!(elements(&page, "Key").count(), keys);
        }
    }
}
