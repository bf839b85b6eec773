	.file	"first"
	.section	.rodata.cst4,"aM",@progbits,4
	.p2align	2, 0x0
.LCPI0_0:
	.long	0x3f800000
	.text
	.p2align	4
	.type	octants.first_0_range.body,@function
octants.first_0_range.body:
	pushq	%r15
	pushq	%r14
	pushq	%r13
	pushq	%r12
	pushq	%rbx
	leaq	15(%rsi), %r12
	movq	%rcx, %r13
	subq	%rdx, %r13
	movq	%rcx, %r14
	movq	%rsi, %rax
	movq	%rdx, %r15
	movq	%rdi, %rbx
	shrq	$4, %r12
	leaq	(%r13,%r13), %rcx
	movq	%r12, %rsi
	shlq	$6, %rsi
	cmpq	%rax, %rcx
	setl	%al
	cmpq	$4194305, %rsi
	setae	%cl
	orb	%al, %cl
	jne	.LBB0_2
	movl	$1, %edi
	callq	calloc@PLT
	testq	%rax, %rax
	je	.LBB0_2
	cmpq	%r14, %r15
	jge	.LBB0_42
	cmpq	$8, %r13
	jb	.LBB0_40
	cmpq	$64, %r13
	jae	.LBB0_35
	xorl	%ecx, %ecx
	jmp	.LBB0_32
.LBB0_2:
	movq	%r15, %rcx
	subq	%r14, %rcx
	jge	.LBB0_27
	andq	$7, %r13
	je	.LBB0_8
	vmovss	.LCPI0_0(%rip), %xmm0
	xorl	%edx, %edx
	.p2align	4
.LBB0_5:
	vmovss	(%rbx,%r15,4), %xmm1
	.p2align	4
.LBB0_6:
	vaddss	%xmm0, %xmm1, %xmm2
	vmovd	%xmm1, %eax
	vmovd	%xmm2, %esi
	lock		cmpxchgl	%esi, (%rbx,%r15,4)
	vmovd	%eax, %xmm1
	jne	.LBB0_6
	incq	%r15
	incq	%rdx
	cmpq	%r13, %rdx
	jne	.LBB0_5
.LBB0_8:
	cmpq	$-8, %rcx
	ja	.LBB0_27
	vmovss	.LCPI0_0(%rip), %xmm0
	.p2align	4
.LBB0_10:
	vmovss	(%rbx,%r15,4), %xmm1
	.p2align	4
.LBB0_11:
	vaddss	%xmm0, %xmm1, %xmm2
	vmovd	%xmm1, %eax
	vmovd	%xmm2, %ecx
	lock		cmpxchgl	%ecx, (%rbx,%r15,4)
	vmovd	%eax, %xmm1
	jne	.LBB0_11
	vmovss	4(%rbx,%r15,4), %xmm1
	.p2align	4
.LBB0_13:
	vaddss	%xmm0, %xmm1, %xmm2
	vmovd	%xmm1, %eax
	vmovd	%xmm2, %ecx
	lock		cmpxchgl	%ecx, 4(%rbx,%r15,4)
	vmovd	%eax, %xmm1
	jne	.LBB0_13
	vmovss	8(%rbx,%r15,4), %xmm1
	.p2align	4
.LBB0_15:
	vaddss	%xmm0, %xmm1, %xmm2
	vmovd	%xmm1, %eax
	vmovd	%xmm2, %ecx
	lock		cmpxchgl	%ecx, 8(%rbx,%r15,4)
	vmovd	%eax, %xmm1
	jne	.LBB0_15
	vmovss	12(%rbx,%r15,4), %xmm1
	.p2align	4
.LBB0_17:
	vaddss	%xmm0, %xmm1, %xmm2
	vmovd	%xmm1, %eax
	vmovd	%xmm2, %ecx
	lock		cmpxchgl	%ecx, 12(%rbx,%r15,4)
	vmovd	%eax, %xmm1
	jne	.LBB0_17
	vmovss	16(%rbx,%r15,4), %xmm1
	.p2align	4
.LBB0_19:
	vaddss	%xmm0, %xmm1, %xmm2
	vmovd	%xmm1, %eax
	vmovd	%xmm2, %ecx
	lock		cmpxchgl	%ecx, 16(%rbx,%r15,4)
	vmovd	%eax, %xmm1
	jne	.LBB0_19
	vmovss	20(%rbx,%r15,4), %xmm1
	.p2align	4
.LBB0_21:
	vaddss	%xmm0, %xmm1, %xmm2
	vmovd	%xmm1, %eax
	vmovd	%xmm2, %ecx
	lock		cmpxchgl	%ecx, 20(%rbx,%r15,4)
	vmovd	%eax, %xmm1
	jne	.LBB0_21
	vmovss	24(%rbx,%r15,4), %xmm1
	.p2align	4
.LBB0_23:
	vaddss	%xmm0, %xmm1, %xmm2
	vmovd	%xmm1, %eax
	vmovd	%xmm2, %ecx
	lock		cmpxchgl	%ecx, 24(%rbx,%r15,4)
	vmovd	%eax, %xmm1
	jne	.LBB0_23
	vmovss	28(%rbx,%r15,4), %xmm1
	.p2align	4
.LBB0_25:
	vaddss	%xmm0, %xmm1, %xmm2
	vmovd	%xmm1, %eax
	vmovd	%xmm2, %ecx
	lock		cmpxchgl	%ecx, 28(%rbx,%r15,4)
	vmovd	%eax, %xmm1
	jne	.LBB0_25
	addq	$8, %r15
	cmpq	%r14, %r15
	jne	.LBB0_10
.LBB0_27:
	popq	%rbx
	popq	%r12
	popq	%r13
	popq	%r14
	popq	%r15
	retq
.LBB0_35:
	vbroadcastss	.LCPI0_0(%rip), %zmm0
	leaq	192(%rax,%r15,4), %rdx
	movq	%r13, %rcx
	andq	$-64, %rcx
	xorl	%esi, %esi
	.p2align	4
.LBB0_36:
	vaddps	-192(%rdx,%rsi,4), %zmm0, %zmm1
	vaddps	-128(%rdx,%rsi,4), %zmm0, %zmm2
	vaddps	-64(%rdx,%rsi,4), %zmm0, %zmm3
	vaddps	(%rdx,%rsi,4), %zmm0, %zmm4
	vmovups	%zmm1, -192(%rdx,%rsi,4)
	vmovups	%zmm2, -128(%rdx,%rsi,4)
	vmovups	%zmm3, -64(%rdx,%rsi,4)
	vmovups	%zmm4, (%rdx,%rsi,4)
	addq	$64, %rsi
	cmpq	%rsi, %rcx
	jne	.LBB0_36
	cmpq	%rcx, %r13
	je	.LBB0_42
	testb	$56, %r13b
	je	.LBB0_39
.LBB0_32:
	vbroadcastss	.LCPI0_0(%rip), %ymm0
	movq	%r13, %rdx
	andq	$-8, %rdx
	leaq	(%rax,%r15,4), %rsi
	addq	%rdx, %r15
	.p2align	4
.LBB0_33:
	vaddps	(%rsi,%rcx,4), %ymm0, %ymm1
	vmovups	%ymm1, (%rsi,%rcx,4)
	addq	$8, %rcx
	cmpq	%rcx, %rdx
	jne	.LBB0_33
	cmpq	%rdx, %r13
	je	.LBB0_42
.LBB0_40:
	vmovss	.LCPI0_0(%rip), %xmm0
	.p2align	4
.LBB0_41:
	vaddss	(%rax,%r15,4), %xmm0, %xmm1
	vmovss	%xmm1, (%rax,%r15,4)
	incq	%r15
	cmpq	%r15, %r14
	jne	.LBB0_41
	.p2align	4
.LBB0_42:
	movl	$1, %ecx
	xchgl	%ecx, scatter.lock(%rip)
	testl	%ecx, %ecx
	jne	.LBB0_42
	#MEMBARRIER
	testq	%r12, %r12
	je	.LBB0_77
	movl	$60, %ecx
	jmp	.LBB0_45
	.p2align	4
.LBB0_76:
	addq	$64, %rcx
	decq	%r12
	je	.LBB0_77
.LBB0_45:
	vmovdqu64	-60(%rax,%rcx), %zmm0
	vptestmd	%zmm0, %zmm0, %k0
	kortestw	%k0, %k0
	je	.LBB0_76
	vmovd	-60(%rax,%rcx), %xmm0
	vmovd	%xmm0, %edx
	testl	%edx, %edx
	jne	.LBB0_79
	vmovd	-56(%rax,%rcx), %xmm0
	vmovd	%xmm0, %edx
	testl	%edx, %edx
	jne	.LBB0_48
.LBB0_49:
	vmovd	-52(%rax,%rcx), %xmm0
	vmovd	%xmm0, %edx
	testl	%edx, %edx
	jne	.LBB0_50
.LBB0_51:
	vmovd	-48(%rax,%rcx), %xmm0
	vmovd	%xmm0, %edx
	testl	%edx, %edx
	jne	.LBB0_52
.LBB0_53:
	vmovd	-44(%rax,%rcx), %xmm0
	vmovd	%xmm0, %edx
	testl	%edx, %edx
	jne	.LBB0_54
.LBB0_55:
	vmovd	-40(%rax,%rcx), %xmm0
	vmovd	%xmm0, %edx
	testl	%edx, %edx
	jne	.LBB0_56
.LBB0_57:
	vmovd	-36(%rax,%rcx), %xmm0
	vmovd	%xmm0, %edx
	testl	%edx, %edx
	jne	.LBB0_58
.LBB0_59:
	vmovd	-32(%rax,%rcx), %xmm0
	vmovd	%xmm0, %edx
	testl	%edx, %edx
	jne	.LBB0_60
.LBB0_61:
	vmovd	-28(%rax,%rcx), %xmm0
	vmovd	%xmm0, %edx
	testl	%edx, %edx
	jne	.LBB0_62
.LBB0_63:
	vmovd	-24(%rax,%rcx), %xmm0
	vmovd	%xmm0, %edx
	testl	%edx, %edx
	jne	.LBB0_64
.LBB0_65:
	vmovd	-20(%rax,%rcx), %xmm0
	vmovd	%xmm0, %edx
	testl	%edx, %edx
	jne	.LBB0_66
.LBB0_67:
	vmovd	-16(%rax,%rcx), %xmm0
	vmovd	%xmm0, %edx
	testl	%edx, %edx
	jne	.LBB0_68
.LBB0_69:
	vmovd	-12(%rax,%rcx), %xmm0
	vmovd	%xmm0, %edx
	testl	%edx, %edx
	jne	.LBB0_70
.LBB0_71:
	vmovd	-8(%rax,%rcx), %xmm0
	vmovd	%xmm0, %edx
	testl	%edx, %edx
	jne	.LBB0_72
.LBB0_73:
	vmovd	-4(%rax,%rcx), %xmm0
	vmovd	%xmm0, %edx
	testl	%edx, %edx
	jne	.LBB0_74
.LBB0_75:
	vmovd	(%rax,%rcx), %xmm0
	vmovd	%xmm0, %edx
	testl	%edx, %edx
	je	.LBB0_76
	jmp	.LBB0_78
	.p2align	4
.LBB0_79:
	vaddss	-60(%rbx,%rcx), %xmm0, %xmm0
	vmovss	%xmm0, -60(%rbx,%rcx)
	vmovd	-56(%rax,%rcx), %xmm0
	vmovd	%xmm0, %edx
	testl	%edx, %edx
	je	.LBB0_49
.LBB0_48:
	vaddss	-56(%rbx,%rcx), %xmm0, %xmm0
	vmovss	%xmm0, -56(%rbx,%rcx)
	vmovd	-52(%rax,%rcx), %xmm0
	vmovd	%xmm0, %edx
	testl	%edx, %edx
	je	.LBB0_51
.LBB0_50:
	vaddss	-52(%rbx,%rcx), %xmm0, %xmm0
	vmovss	%xmm0, -52(%rbx,%rcx)
	vmovd	-48(%rax,%rcx), %xmm0
	vmovd	%xmm0, %edx
	testl	%edx, %edx
	je	.LBB0_53
.LBB0_52:
	vaddss	-48(%rbx,%rcx), %xmm0, %xmm0
	vmovss	%xmm0, -48(%rbx,%rcx)
	vmovd	-44(%rax,%rcx), %xmm0
	vmovd	%xmm0, %edx
	testl	%edx, %edx
	je	.LBB0_55
.LBB0_54:
	vaddss	-44(%rbx,%rcx), %xmm0, %xmm0
	vmovss	%xmm0, -44(%rbx,%rcx)
	vmovd	-40(%rax,%rcx), %xmm0
	vmovd	%xmm0, %edx
	testl	%edx, %edx
	je	.LBB0_57
.LBB0_56:
	vaddss	-40(%rbx,%rcx), %xmm0, %xmm0
	vmovss	%xmm0, -40(%rbx,%rcx)
	vmovd	-36(%rax,%rcx), %xmm0
	vmovd	%xmm0, %edx
	testl	%edx, %edx
	je	.LBB0_59
.LBB0_58:
	vaddss	-36(%rbx,%rcx), %xmm0, %xmm0
	vmovss	%xmm0, -36(%rbx,%rcx)
	vmovd	-32(%rax,%rcx), %xmm0
	vmovd	%xmm0, %edx
	testl	%edx, %edx
	je	.LBB0_61
.LBB0_60:
	vaddss	-32(%rbx,%rcx), %xmm0, %xmm0
	vmovss	%xmm0, -32(%rbx,%rcx)
	vmovd	-28(%rax,%rcx), %xmm0
	vmovd	%xmm0, %edx
	testl	%edx, %edx
	je	.LBB0_63
.LBB0_62:
	vaddss	-28(%rbx,%rcx), %xmm0, %xmm0
	vmovss	%xmm0, -28(%rbx,%rcx)
	vmovd	-24(%rax,%rcx), %xmm0
	vmovd	%xmm0, %edx
	testl	%edx, %edx
	je	.LBB0_65
.LBB0_64:
	vaddss	-24(%rbx,%rcx), %xmm0, %xmm0
	vmovss	%xmm0, -24(%rbx,%rcx)
	vmovd	-20(%rax,%rcx), %xmm0
	vmovd	%xmm0, %edx
	testl	%edx, %edx
	je	.LBB0_67
.LBB0_66:
	vaddss	-20(%rbx,%rcx), %xmm0, %xmm0
	vmovss	%xmm0, -20(%rbx,%rcx)
	vmovd	-16(%rax,%rcx), %xmm0
	vmovd	%xmm0, %edx
	testl	%edx, %edx
	je	.LBB0_69
.LBB0_68:
	vaddss	-16(%rbx,%rcx), %xmm0, %xmm0
	vmovss	%xmm0, -16(%rbx,%rcx)
	vmovd	-12(%rax,%rcx), %xmm0
	vmovd	%xmm0, %edx
	testl	%edx, %edx
	je	.LBB0_71
.LBB0_70:
	vaddss	-12(%rbx,%rcx), %xmm0, %xmm0
	vmovss	%xmm0, -12(%rbx,%rcx)
	vmovd	-8(%rax,%rcx), %xmm0
	vmovd	%xmm0, %edx
	testl	%edx, %edx
	je	.LBB0_73
.LBB0_72:
	vaddss	-8(%rbx,%rcx), %xmm0, %xmm0
	vmovss	%xmm0, -8(%rbx,%rcx)
	vmovd	-4(%rax,%rcx), %xmm0
	vmovd	%xmm0, %edx
	testl	%edx, %edx
	je	.LBB0_75
.LBB0_74:
	vaddss	-4(%rbx,%rcx), %xmm0, %xmm0
	vmovss	%xmm0, -4(%rbx,%rcx)
	vmovd	(%rax,%rcx), %xmm0
	vmovd	%xmm0, %edx
	testl	%edx, %edx
	je	.LBB0_76
.LBB0_78:
	vaddss	(%rbx,%rcx), %xmm0, %xmm0
	vmovss	%xmm0, (%rbx,%rcx)
	jmp	.LBB0_76
.LBB0_77:
	#MEMBARRIER
	xorl	%ecx, %ecx
	xchgl	%ecx, scatter.lock(%rip)
	movq	%rax, %rdi
	popq	%rbx
	popq	%r12
	popq	%r13
	popq	%r14
	popq	%r15
	vzeroupper
	jmp	free@PLT
.LBB0_39:
	addq	%rcx, %r15
	jmp	.LBB0_40
.Lfunc_end0:
	.size	octants.first_0_range.body, .Lfunc_end0-octants.first_0_range.body

	.globl	octants.first_0_range
	.p2align	4
	.type	octants.first_0_range,@function
octants.first_0_range:
	pushq	%rax
	vstmxcsr	(%rsp)
	movl	$32832, %eax
	movq	%rdx, %rcx
	movq	%rsi, %rdx
	orl	(%rsp), %eax
	movl	%eax, 4(%rsp)
	vldmxcsr	4(%rsp)
	movq	(%rdi), %rax
	movq	(%rax), %rdi
	movq	8(%rax), %rsi
	callq	octants.first_0_range.body
	vldmxcsr	(%rsp)
	xorl	%eax, %eax
	popq	%rcx
	retq
.Lfunc_end1:
	.size	octants.first_0_range, .Lfunc_end1-octants.first_0_range

	.section	.rodata.cst4,"aM",@progbits,4
	.p2align	2, 0x0
.LCPI2_0:
	.long	0x3f800000
	.text
	.p2align	4
	.type	octants.first_0_range.single.body,@function
octants.first_0_range.single.body:
	movq	%rdx, %rax
	subq	%rsi, %rax
	jle	.LBB2_14
	cmpq	$8, %rax
	jb	.LBB2_12
	cmpq	$64, %rax
	jae	.LBB2_7
	xorl	%ecx, %ecx
	jmp	.LBB2_4
.LBB2_7:
	vbroadcastss	.LCPI2_0(%rip), %zmm0
	leaq	192(%rdi,%rsi,4), %r8
	movq	%rax, %rcx
	andq	$-64, %rcx
	xorl	%r9d, %r9d
	.p2align	4
.LBB2_8:
	vaddps	-192(%r8,%r9,4), %zmm0, %zmm1
	vaddps	-128(%r8,%r9,4), %zmm0, %zmm2
	vaddps	-64(%r8,%r9,4), %zmm0, %zmm3
	vaddps	(%r8,%r9,4), %zmm0, %zmm4
	vmovups	%zmm1, -192(%r8,%r9,4)
	vmovups	%zmm2, -128(%r8,%r9,4)
	vmovups	%zmm3, -64(%r8,%r9,4)
	vmovups	%zmm4, (%r8,%r9,4)
	addq	$64, %r9
	cmpq	%r9, %rcx
	jne	.LBB2_8
	cmpq	%rcx, %rax
	je	.LBB2_14
	testb	$56, %al
	je	.LBB2_11
.LBB2_4:
	vbroadcastss	.LCPI2_0(%rip), %ymm0
	movq	%rax, %r8
	andq	$-8, %r8
	leaq	(%rdi,%rsi,4), %r9
	addq	%r8, %rsi
	.p2align	4
.LBB2_5:
	vaddps	(%r9,%rcx,4), %ymm0, %ymm1
	vmovups	%ymm1, (%r9,%rcx,4)
	addq	$8, %rcx
	cmpq	%rcx, %r8
	jne	.LBB2_5
	cmpq	%r8, %rax
	je	.LBB2_14
.LBB2_12:
	vmovss	.LCPI2_0(%rip), %xmm0
	.p2align	4
.LBB2_13:
	vaddss	(%rdi,%rsi,4), %xmm0, %xmm1
	vmovss	%xmm1, (%rdi,%rsi,4)
	incq	%rsi
	cmpq	%rsi, %rdx
	jne	.LBB2_13
.LBB2_14:
	vzeroupper
	retq
.LBB2_11:
	addq	%rcx, %rsi
	jmp	.LBB2_12
.Lfunc_end2:
	.size	octants.first_0_range.single.body, .Lfunc_end2-octants.first_0_range.single.body

	.globl	octants.first_0_range.single
	.p2align	4
	.type	octants.first_0_range.single,@function
octants.first_0_range.single:
	pushq	%rax
	vstmxcsr	(%rsp)
	movl	$32832, %eax
	orl	(%rsp), %eax
	movl	%eax, 4(%rsp)
	vldmxcsr	4(%rsp)
	movq	(%rdi), %rax
	movq	(%rax), %rdi
	callq	octants.first_0_range.single.body
	vldmxcsr	(%rsp)
	xorl	%eax, %eax
	popq	%rcx
	retq
.Lfunc_end3:
	.size	octants.first_0_range.single, .Lfunc_end3-octants.first_0_range.single

	.globl	octants.first_0_range.count
	.p2align	4
	.type	octants.first_0_range.count,@function
octants.first_0_range.count:
	movq	(%rdi), %rax
	movslq	8(%rax), %rax
	movq	%rax, %rcx
	sarq	$63, %rcx
	andnq	%rax, %rcx, %rax
	retq
.Lfunc_end4:
	.size	octants.first_0_range.count, .Lfunc_end4-octants.first_0_range.count

	.type	scatter.lock,@object
	.local	scatter.lock
	.comm	scatter.lock,4,4
	.section	".note.GNU-stack","",@progbits
