//! Files of `torch.save`: read as torch reads them, and never run.

mod shared;

use std::io::Write;
use std::path::Path;

use lifelong_kernels::Format;
use lifelong_models::file::ModelFile;
use lifelong_models::torch_file::Header;
use lifelong_models::{Checkpoint, Error, Fault};

fn golden(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/bge-m3").join(name)).unwrap()
}

fn read(bytes: Vec<u8>) -> Result<Header, Error> {
    Header::read(&ModelFile::from_bytes(Path::new("x.pt"), bytes))
}

/// A zip of stored files, as torch lays them out.
fn archive(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let stored = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    for (name, bytes) in members {
        writer.start_file(*name, stored).unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

fn fault(bytes: Vec<u8>) -> (Fault, String) {
    match read(bytes) {
        Err(Error::Malformed { fault, detail, .. }) => (fault, detail),
        other => panic!("{other:?}"),
    }
}

#[test]
fn tensors_are_found_where_torch_put_them() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/bge-m3/sparse_linear.pt");
    let checkpoint = Checkpoint::open(&path).unwrap();
    assert_eq!(checkpoint.names().collect::<Vec<_>>(), ["bias", "weight"]);
    let weight = checkpoint.tensor("weight").unwrap();
    assert_eq!((weight.shape, weight.format, weight.bytes.len()), (&[1usize, 16][..], Format::F32, 64));
    let folder = Checkpoint::open(path.parent().unwrap()).unwrap();
    assert_eq!(folder.tensor("embeddings.word_embeddings.weight").unwrap().format, Format::F16);
}

/// Programs that a pickle can be: names of functions, in both spellings, and instructions that make objects.
#[test]
fn a_pickle_that_does_more_than_describe_tensors_is_refused_by_what_it_asks_for() {
    let programs: [(&[u8], &str); 6] = [
        (b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00exit\x85R.", "os.system"),
        (b"\x80\x02cposix\nsystem\n)R.", "posix.system"),
        (b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93\x8c\x011\x85R.", "builtins.eval"),
        (b"\x80\x02ctorch.hub\nload\n)R.", "torch.hub.load"),
        // Calls that need no name of a module: an instance by class, and an extension by number.
        (b"\x80\x02(ios\nsystem\n.", "instruction 0x69"),
        (b"\x80\x02\x82\x01)R.", "instruction 0x82"),
    ];
    for (program, word) in programs {
        let (fault, detail) = fault(archive(&[("a/data.pkl", program)]));
        assert_eq!(fault, Fault::UnsafePickle, "{detail}");
        assert!(detail.contains(word) && detail.contains("nothing was run"), "{detail}");
    }
}

/// A storage of four numbers, and a tensor of the given shape and strides in it.
fn one_tensor(shape: &str, stride: &str, elements: u8, stored: &[u8]) -> Vec<u8> {
    let text = |text: &str| [&[b'X', text.len() as u8, 0, 0, 0], text.as_bytes()].concat();
    let numbers = |list: &str| -> Vec<u8> {
        let numbers = list.split(',').flat_map(|number| [b'K', number.parse().unwrap()]);
        [b'('].into_iter().chain(numbers).chain([b't']).collect()
    };
    let storage =
        [&b"("[..], &text("storage"), b"ctorch\nFloatStorage\n", &text("0"), &text("cpu"), &[b'K', elements], b"tQ"]
            .concat();
    let tensor = [
        &b"ctorch._utils\n_rebuild_tensor_v2\n("[..],
        &storage,
        b"K\x00",
        &numbers(shape),
        &numbers(stride),
        b"\x89ccollections\nOrderedDict\n)RtR",
    ]
    .concat();
    let program = [&b"\x80\x02}("[..], &text("w"), &tensor, b"u."].concat();
    archive(&[("a/data.pkl", &program), ("a/byteorder", b"little"), ("a/data/0", stored)])
}

#[test]
fn tensors_that_do_not_fit_their_storage_are_refused() {
    let header = read(one_tensor("2,2", "2,1", 4, &[0; 16])).unwrap();
    assert_eq!(header.tensors["w"].shape, [2, 2]);
    assert_eq!(fault(one_tensor("2,2", "1,2", 4, &[0; 16])).0, Fault::BadDims, "columns first");
    assert_eq!(fault(one_tensor("2,3", "3,1", 4, &[0; 16])).0, Fault::BadDims, "six of four numbers");
    assert_eq!(fault(one_tensor("2,2", "2,1", 5, &[0; 16])).0, Fault::SizeMismatch, "a storage of another size");
    assert_eq!(fault(one_tensor("2", "2,1", 4, &[0; 16])).0, Fault::BadDims, "a stride too many");
    let mut big = one_tensor("2,2", "2,1", 4, &[0; 16]);
    let at = big.windows(6).position(|window| window == b"little").unwrap();
    big[at..at + 6].copy_from_slice(b"biggig");
    assert!(fault(big).1.contains("byte order"));
}

/// A tuple of tuples of tuples, each twice the one before: its text is short and what it stands for is not.
#[test]
fn values_that_stand_for_others_are_not_copied() {
    let mut program = b"\x80\x02)q\x00".to_vec();
    for _ in 0..100_000 {
        program.extend(b"h\x00h\x00\x86q\x00");
    }
    program.push(b'.');
    assert!(fault(archive(&[("a/data.pkl", &program)])).1.contains("something else"));
}

/// Every prefix and every changed byte of real files: an answer or an error, never a panic.
#[test]
fn damaged_files_are_errors() {
    for name in ["sparse_linear.pt", "colbert_linear.pt"] {
        let whole = golden(name);
        for length in 0..whole.len() {
            assert!(read(whole[..length].to_vec()).is_err(), "{name} cut at {length}");
        }
        for at in 0..whole.len() {
            for change in [0x01, 0x80, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] ^= change;
                drop(read(bytes));
            }
        }
    }
}

/// Instructions of one byte that leave a hundred bytes behind: the count ends them, at a tenth of a second and 100 MB.
#[test]
fn short_instructions_do_not_fill_memory() {
    let start = std::time::Instant::now();
    let before = resident_bytes();
    for instruction in [&b")"[..], b"}", b"N", b"(", b"\x8c\x00", b"K\x01\x94"] {
        let program = [b"\x80\x02".to_vec(), instruction.repeat((4 << 20) / instruction.len() - 8)].concat();
        let (fault, detail) = fault(archive(&[("a/data.pkl", &program)]));
        assert_eq!(fault, Fault::Limit, "{detail}");
    }
    assert_eq!(fault(archive(&[("a/data.pkl", &vec![b'N'; (4 << 20) + 1])])).0, Fault::Limit, "too long");
    let long = [&b"\x80\x02X\x01\x10\x00\x00"[..], &[b'a'; 4097], b"."].concat();
    assert_eq!(fault(archive(&[("a/data.pkl", &long)])).0, Fault::Limit, "a name of 4097 letters");
    assert!(start.elapsed().as_secs_f64() < 1.0, "{:?}", start.elapsed());
    if let (Some(before), Some(after)) = (before, resident_bytes()) {
        assert!(after.saturating_sub(before) < 200 << 20, "{before} → {after}");
    }
}

/// The most memory this program has taken; `None` where the system does not say.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}
