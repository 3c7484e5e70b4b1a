//! PURE. An empty ext4 file system as bytes, like `mkfs.ext4` would write it, in microseconds. All written bytes are at
//! the beginning, so that a sparse file for it is cheap to create and to delete.
//!
//! No journal: nothing of it outlives the container. Blocks of 4 KiB, groups of 128 MiB. Only the first group is
//! written. The kernel computes the bitmaps of the others at first use (`uninit_bg`), and their inode tables are holes
//! of the file. Layout: Documentation/filesystems/ext4 of the kernel.

/// Bytes of a block.
const BLOCK: usize = 4096;

/// Blocks of a group: as many as a block has bits.
const PER_GROUP: u64 = 32_768;

/// Bytes of an inode.
const INODE: usize = 256;

/// Bytes per file: sets the number of inodes.
const PER_FILE: u64 = 16 << 10;

/// Every file system has room for this many files.
const FEWEST: u64 = 1024;

/// Inodes that ext4 reserves, the root directory's included.
const RESERVED: u32 = 10;

/// The root directory's inode.
const ROOT: usize = 2;

/// The owner of the root directory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Owner {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// An empty file system image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmptyImage {
    /// Its size.
    pub bytes: u64,
    /// The first bytes; all others are zero.
    pub head: Vec<u8>,
}

/// The positions of an image's parts.
struct Geometry {
    blocks: u64,
    groups: u64,
    /// Blocks of the group descriptor table.
    table: u64,
    inodes: u64,
    /// Blocks of a group's inode table.
    inode_blocks: u64,
}

impl Geometry {
    /// For at most this many bytes. The last group is omitted if it has no room for its own tables.
    fn of(bytes: u64) -> Self {
        let mut blocks = bytes / BLOCK as u64;
        let wanted = match blocks > PER_GROUP {
            true => PER_GROUP * BLOCK as u64 / PER_FILE,
            false => (bytes / PER_FILE).max(FEWEST),
        };
        // A whole number of blocks of the table, and of bytes of the bitmap.
        let inodes = wanted.next_multiple_of((BLOCK / INODE) as u64);
        let inode_blocks = inodes * INODE as u64 / BLOCK as u64;
        let rest = blocks % PER_GROUP;
        if blocks > PER_GROUP && rest != 0 && rest < inode_blocks + 2 + 64 {
            blocks -= rest;
        }
        let groups = blocks.div_ceil(PER_GROUP);
        Self {
            blocks,
            groups,
            table: (groups * 32).div_ceil(BLOCK as u64),
            inodes,
            inode_blocks,
        }
    }

    fn blocks_of(&self, group: u64) -> u64 {
        (self.blocks - group * PER_GROUP).min(PER_GROUP)
    }

    /// The block of a group's first table: first its bitmaps, then its inodes.
    fn start(&self, group: u64) -> u64 {
        match group {
            // After the superblock, the only descriptor table (`sparse_super2`: no copies), the root directory, and the
            // last group's block bitmap.
            0 => self.directory() + 1 + u64::from(self.groups > 1),
            _ => group * PER_GROUP,
        }
    }

    /// Blocks of a group that are in use.
    fn used(&self, group: u64) -> u64 {
        let own = 2 + self.inode_blocks;
        match group {
            0 => self.start(0) + own,
            // Its block bitmap is in the first group.
            _ if self.is_last(group) => own - 1,
            _ => own,
        }
    }

    /// The root directory's block: before the tables, so that the written bytes are contiguous.
    fn directory(&self) -> u64 {
        1 + self.table
    }

    /// Whether a group is the last of several. It may be shorter than the others. The kernel could compute its block
    /// bitmap, but e2fsck requires it on disk.
    fn is_last(&self, group: u64) -> bool {
        group != 0 && group + 1 == self.groups
    }

    fn free(&self) -> u64 {
        let free = |group| self.blocks_of(group) - self.used(group);
        (0..self.groups).map(free).sum()
    }
}

impl EmptyImage {
    /// An empty file system of at most `bytes`, at least 1 MiB.
    pub fn new(bytes: u64, owner: Owner) -> Self {
        let shape = Geometry::of(bytes);
        // Both bitmaps, and the block of the inode table with the root's inode.
        let mut head = vec![0; (shape.start(0) as usize + 3) * BLOCK];
        superblock(&mut head, &shape);
        for group in 0..shape.groups {
            let at = BLOCK + group as usize * 32;
            descriptor(&mut head[at..at + 32], &shape, group);
        }
        let bitmaps = shape.start(0) as usize * BLOCK;
        let (blocks, inodes) = head[bitmaps..bitmaps + 2 * BLOCK].split_at_mut(BLOCK);
        set_bits(blocks, 0, shape.used(0));
        set_bits(blocks, shape.blocks_of(0), PER_GROUP);
        set_bits(inodes, 0, u64::from(RESERVED));
        set_bits(inodes, shape.inodes, PER_GROUP);
        if shape.groups > 1 {
            let last = &mut head[bitmaps - BLOCK..bitmaps];
            set_bits(last, 0, shape.used(shape.groups - 1));
            set_bits(last, shape.blocks_of(shape.groups - 1), PER_GROUP);
        }
        root(&mut head, &shape, owner);
        Self {
            bytes: shape.blocks * BLOCK as u64,
            head,
        }
    }

    /// How many files fit.
    pub fn files(bytes: u64) -> u64 {
        let shape = Geometry::of(bytes);
        shape.groups * shape.inodes - u64::from(RESERVED)
    }
}

fn superblock(head: &mut [u8], shape: &Geometry) {
    let mut sb = Writer(&mut head[1024..2048]);
    let inodes = shape.groups * shape.inodes;
    sb.long(0x00, inodes as u32);
    sb.long(0x04, shape.blocks as u32);
    sb.long(0x0c, shape.free() as u32);
    sb.long(0x10, inodes as u32 - RESERVED);
    // Size of blocks and of clusters: 1024 << 2.
    sb.long(0x18, 2);
    sb.long(0x1c, 2);
    sb.long(0x20, PER_GROUP as u32);
    sb.long(0x24, PER_GROUP as u32);
    sb.long(0x28, shape.inodes as u32);
    // No check because of its age.
    sb.short(0x36, 0xffff);
    sb.short(0x38, 0xef53);
    // Clean; read-only after an error.
    sb.short(0x3a, 1);
    sb.short(0x3c, 2);
    sb.long(0x4c, 1);
    sb.long(0x54, RESERVED + 1);
    sb.short(0x58, INODE as u16);
    // ext_attr, dir_index, sparse_super2
    sb.long(0x5c, 0x8 | 0x20 | 0x200);
    // filetype, extents, flex_bg
    sb.long(0x60, 0x2 | 0x40 | 0x200);
    // large_file, huge_file, uninit_bg, dir_nlink, extra_isize
    sb.long(0x64, 0x2 | 0x8 | 0x10 | 0x20 | 0x40);
    // No UUID and no label, so that nothing on the node can find it by name.
    // Half MD4 with unsigned characters, for large directories.
    sb.byte(0xfc, 1);
    sb.long(0x160, 2);
    sb.short(0x15c, 32);
    sb.short(0x15e, 32);
    // Sixteen groups are allocated together (flex_bg).
    sb.byte(0x174, 4);
}

/// A group descriptor. Only the first group is initialized; the kernel computes the others.
fn descriptor(bytes: &mut [u8], shape: &Geometry, group: u64) {
    const INODES_UNINIT: u16 = 1;
    const BLOCKS_UNINIT: u16 = 2;
    const TABLE_ZEROED: u16 = 4;
    let start = shape.start(group) as u32;
    let last = shape.is_last(group);
    let (bitmap, own) = match last {
        true => (shape.start(0) as u32 - 1, start),
        false => (start, start + 1),
    };
    let mut desc = Writer(bytes);
    desc.long(0, bitmap);
    desc.long(4, own);
    desc.long(8, own + 1);
    let free = shape.blocks_of(group) - shape.used(group);
    desc.short(12, free as u16);
    let (free_inodes, unused, directories, flags) = match group {
        0 => {
            let free = shape.inodes - u64::from(RESERVED);
            (free, free, 1, TABLE_ZEROED)
        }
        _ => {
            let blocks = if last { 0 } else { BLOCKS_UNINIT };
            let flags = INODES_UNINIT | blocks | TABLE_ZEROED;
            (shape.inodes, shape.inodes, 0, flags)
        }
    };
    desc.short(14, free_inodes as u16);
    desc.short(16, directories);
    desc.short(18, flags);
    desc.short(28, unused as u16);
    // Over the UUID (zero), the group's number, and the descriptor up to the checksum.
    let mut sum = crc16(0xffff, &[0; 16]);
    sum = crc16(sum, &(group as u32).to_le_bytes());
    sum = crc16(sum, &bytes[..30]);
    Writer(bytes).short(30, sum);
}

/// The root directory: its inode and its only block.
fn root(head: &mut [u8], shape: &Geometry, owner: Owner) {
    let at = (shape.start(0) as usize + 2) * BLOCK + (ROOT - 1) * INODE;
    let mut inode = Writer(&mut head[at..at + INODE]);
    // A directory with mode 0755.
    inode.short(0x00, 0o40755);
    inode.short(0x02, owner.uid as u16);
    inode.short(0x78, (owner.uid >> 16) as u16);
    inode.short(0x18, owner.gid as u16);
    inode.short(0x7a, (owner.gid >> 16) as u16);
    inode.long(0x04, BLOCK as u32);
    inode.short(0x1a, 2);
    inode.long(0x1c, BLOCK as u32 / 512);
    // One extent of one block.
    inode.long(0x20, 0x8_0000);
    inode.short(0x28, 0xf30a);
    inode.short(0x2a, 1);
    inode.short(0x2c, 4);
    inode.short(0x38, 1);
    inode.long(0x3c, shape.directory() as u32);
    inode.short(0x80, 32);
    let at = shape.directory() as usize * BLOCK;
    let mut block = Writer(&mut head[at..at + BLOCK]);
    // Inode, length of the entry, length of the name, type, name.
    block.long(0, ROOT as u32);
    block.short(4, 12);
    block.short(6, 0x0201);
    block.byte(8, b'.');
    block.long(12, ROOT as u32);
    block.short(16, BLOCK as u16 - 12);
    block.short(18, 0x0202);
    block.byte(20, b'.');
    block.byte(21, b'.');
}

/// Writes little-endian numbers at offsets.
struct Writer<'a>(&'a mut [u8]);

impl Writer<'_> {
    fn byte(&mut self, at: usize, value: u8) {
        self.0[at] = value;
    }

    fn short(&mut self, at: usize, value: u16) {
        self.0[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }

    fn long(&mut self, at: usize, value: u32) {
        self.0[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
}

fn set_bits(bitmap: &mut [u8], from: u64, to: u64) {
    for bit in from..to {
        bitmap[(bit / 8) as usize] |= 1 << (bit % 8);
    }
}

/// CRC-16 as the kernel's crc16(): polynomial 0x8005, reflected.
fn crc16(mut crc: u16, bytes: &[u8]) -> u16 {
    for byte in bytes {
        crc ^= u16::from(*byte);
        for _ in 0..8 {
            crc = match crc & 1 {
                1 => (crc >> 1) ^ 0xa001,
                _ => crc >> 1,
            };
        }
    }
    crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_crc_16() {
        // The check value of CRC-16/ARC and of CRC-16/MODBUS.
        assert_eq!(crc16(0, b"123456789"), 0xbb3d);
        assert_eq!(crc16(0xffff, b"123456789"), 0x4b37);
    }

    #[test]
    fn every_size_has_room_for_its_own_tables() {
        let sizes = (0..17).map(|bit| (1_u64 << 20) << bit);
        let odd = [
            (128 << 20) + 4096,
            (129 << 20) + 8192,
            (256 << 20) - 1024,
            5 << 30,
        ];
        for bytes in sizes.chain(odd) {
            let shape = Geometry::of(bytes);
            assert!(shape.blocks * BLOCK as u64 <= bytes, "{bytes}");
            for group in 0..shape.groups {
                assert!(
                    shape.blocks_of(group) > shape.used(group),
                    "{bytes} {group}"
                );
            }
            let blank = EmptyImage::new(bytes, Owner::default());
            // The head is written for each container.
            assert!(
                blank.head.len() <= 40 << 10,
                "{bytes}: {}",
                blank.head.len()
            );
            assert!(blank.head.len() as u64 <= blank.bytes);
            assert!(EmptyImage::files(bytes) >= 1000, "{bytes}");
        }
        assert_eq!(EmptyImage::files(4 << 30), 262_134);
    }

    /// e2fsck, if installed, finds no errors.
    #[test]
    fn a_checker_of_file_systems_agrees() {
        let dir = std::env::temp_dir().join(format!("ext4-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        for (number, bytes) in [1 << 20, 64 << 20, 200 << 20, 4 << 30, 64_u64 << 30]
            .into_iter()
            .enumerate()
        {
            let path = dir.join(number.to_string());
            let owner = Owner {
                uid: 100_000,
                gid: 200_000,
            };
            let blank = EmptyImage::new(bytes, owner);
            std::fs::write(&path, &blank.head).unwrap();
            let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            file.set_len(blank.bytes).unwrap();
            for program in ["/usr/sbin/e2fsck", "/sbin/e2fsck"] {
                let Ok(seen) = std::process::Command::new(program)
                    .args(["-fn", path.to_str().unwrap()])
                    .output()
                else {
                    continue;
                };
                let text = String::from_utf8_lossy(&seen.stdout).into_owned();
                assert!(seen.status.success(), "{bytes}: {text}");
                break;
            }
        }
        std::fs::remove_dir_all(dir).unwrap();
    }
}
