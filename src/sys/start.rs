#![expect(unsafe_code, reason = "the program's first instructions")]
//! The program's first instructions, before the C library's.
//!
//! A verb that enters a container runs from a read-only, detached mount of the program's file ([`crate::runtime::seal`]
//! checks that, and reports why if it cannot be). To get there it executes itself again. The C library takes most of a
//! millisecond to begin on a virtual machine, where each of its eighty `cpuid` goes to the hypervisor, and Rust takes
//! some more. This code executes the program again before both.
//!
//! The linker finds the code by its name (build.rs). Anything unexpected is left to the seal: another verb, descriptors
//! from systemd, a failed call. Only system calls are made: no address is relocated yet, and no library function may be
//! called.

// On the stack: argc, argv and a null, envp and a null (the System V ABI for AMD64, "Process Initialization").
core::arch::global_asm!(
    r#"
    .pushsection .text.agentbox_start, "ax", @progbits
    .globl agentbox_start
    .hidden __ehdr_start
    .type agentbox_start, @function
agentbox_start:
    # What the kernel left for _start: rsp and rdx.
    mov r15, rsp
    mov r14, rdx
    cld

    # One of the arguments must be a verb that enters a container.
    mov rbx, [r15]
    lea r13, [r15 + 8]
    test rbx, rbx
    jz 9f
    dec rbx
    lea r12, [r13 + 8]
20: test rbx, rbx
    jz 9f
    dec rbx
    mov rsi, [r12]
    add r12, 8
    mov eax, [rsi]
    cmp eax, 0x006e7572           # "run"
    je 2f
    cmp eax, 0x61657263           # "crea"
    je 3f
    cmp eax, 0x63657865           # "exec"
    je 4f
    cmp eax, 0x70617277           # "wrap"
    jne 20b
4:  cmp byte ptr [rsi + 4], 0
    je 2f
    jmp 20b
3:  cmp word ptr [rsi + 4], 0x6574 # "te"
    jne 20b
    cmp byte ptr [rsi + 6], 0
    jne 20b

    # envp begins behind argv's null. LISTEN_FDS and LISTEN_PID are the seal's to judge.
2:  mov rax, [r15]
    lea r12, [r15 + 8 * rax + 16]
    mov rbx, r12
5:  mov rsi, [rbx]
    add rbx, 8
    test rsi, rsi
    jz 6f
    cmp dword ptr [rsi], 0x5453494c # "LIST"
    je 9f
    jmp 5b

    # Already there?  statx(AT_FDCWD, "/proc/self/exe", 0, 0, buffer): stx_attributes, STATX_ATTR_MOUNT_ROOT. A read-only mount is no
    # answer: the node's own may become writable again. A file that is mounted by itself is the seal's to judge.
6:  sub rsp, 256
    mov eax, 332
    mov edi, -100
    lea rsi, [rip + 70f]
    xor edx, edx
    xor r10d, r10d
    mov r8, rsp
    syscall
    test eax, eax
    jnz 8f
    test byte ptr [rsp + 9], 0x20
    jnz 8f

    # open_tree(AT_FDCWD, "/proc/self/exe", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC)
    mov eax, 428
    mov edi, -100
    lea rsi, [rip + 70f]
    mov edx, 0x80001
    syscall
    test eax, eax
    js 8f
    mov ebx, eax

    # mount_setattr(fd, "", AT_EMPTY_PATH, set MOUNT_ATTR_RDONLY, 32)
    mov eax, 442
    mov edi, ebx
    lea rsi, [rip + 71f]
    mov edx, 0x1000
    lea r10, [rip + 72f]
    mov r8d, 32
    syscall
    test eax, eax
    jnz 7f

    # execveat(fd, "", argv, envp, AT_EMPTY_PATH)
    mov eax, 322
    mov edi, ebx
    lea rsi, [rip + 71f]
    mov rdx, r13
    mov r10, r12
    mov r8d, 0x1000
    syscall

    # It failed: without the mount, on with what there is.
7:  mov eax, 3
    mov edi, ebx
    syscall
8:  mov rsp, r15

    # Here it stays. What is relocated next is a hundred pages one after another, and read-only from then on: fetched at once, they
    # are not faulted in one by one.  madvise(PT_GNU_RELRO, in whole pages, MADV_POPULATE_WRITE)
9:  lea rax, [rip + __ehdr_start]
    movzx ecx, word ptr [rax + 56]  # e_phnum
    mov rsi, [rax + 32]             # e_phoff
    add rsi, rax
21: test ecx, ecx
    jz 22f
    dec ecx
    mov edx, [rsi]
    add rsi, 56
    cmp edx, 0x6474e552             # PT_GNU_RELRO
    jne 21b
    mov rdi, [rsi - 56 + 16]        # p_vaddr
    mov rsi, [rsi - 56 + 40]        # p_memsz
    add rdi, rax
    add rsi, rdi
    and rdi, -4096
    and rsi, -4096
    sub rsi, rdi
    mov edx, 23
    mov eax, 28
    syscall
22: mov rdx, r14
    jmp _start

    .balign 8
72: .quad 1, 0, 0, 0
70: .asciz "/proc/self/exe"
71: .asciz ""
    .size agentbox_start, . - agentbox_start
    .popsection
"#
);
