	.file	"second"
	.text
	.p2align	4
	.type	octants.second_0_serial.body,@function
octants.second_0_serial.body:
	movl	$0, (%rdi)
	retq
.Lfunc_end0:
	.size	octants.second_0_serial.body, .Lfunc_end0-octants.second_0_serial.body

	.globl	octants.second_0_serial
	.p2align	4
	.type	octants.second_0_serial,@function
octants.second_0_serial:
	pushq	%rax
	vstmxcsr	(%rsp)
	movl	$32832, %eax
	orl	(%rsp), %eax
	movl	%eax, 4(%rsp)
	vldmxcsr	4(%rsp)
	movq	8(%rdi), %rdi
	callq	octants.second_0_serial.body
	vldmxcsr	(%rsp)
	xorl	%eax, %eax
	popq	%rcx
	retq
.Lfunc_end1:
	.size	octants.second_0_serial, .Lfunc_end1-octants.second_0_serial

	.p2align	4
	.type	octants.second_1_range.body,@function
octants.second_1_range.body:
	movq	%rcx, %rax
	subq	%rdx, %rax
	vxorps	%xmm0, %xmm0, %xmm0
	jle	.LBB2_7
	cmpq	$8, %rax
	jb	.LBB2_15
	cmpq	$64, %rax
	jae	.LBB2_10
	xorl	%r8d, %r8d
	jmp	.LBB2_4
.LBB2_10:
	leaq	192(%rdi,%rdx,4), %r9
	movq	%rax, %r8
	andq	$-64, %r8
	vxorps	%xmm0, %xmm0, %xmm0
	xorl	%r10d, %r10d
	vxorps	%xmm1, %xmm1, %xmm1
	vxorps	%xmm2, %xmm2, %xmm2
	vxorps	%xmm3, %xmm3, %xmm3
	.p2align	4
.LBB2_11:
	vaddps	-192(%r9,%r10,4), %zmm0, %zmm0
	vaddps	-128(%r9,%r10,4), %zmm1, %zmm1
	vaddps	-64(%r9,%r10,4), %zmm2, %zmm2
	vaddps	(%r9,%r10,4), %zmm3, %zmm3
	addq	$64, %r10
	cmpq	%r10, %r8
	jne	.LBB2_11
	vaddps	%zmm0, %zmm1, %zmm0
	vaddps	%zmm2, %zmm3, %zmm2
	vaddps	%zmm0, %zmm2, %zmm0
	vextractf64x4	$1, %zmm0, %ymm1
	vaddps	%zmm1, %zmm0, %zmm0
	vextractf128	$1, %ymm0, %xmm1
	vaddps	%xmm1, %xmm0, %xmm0
	vshufpd	$1, %xmm0, %xmm0, %xmm1
	vaddps	%xmm1, %xmm0, %xmm0
	vmovshdup	%xmm0, %xmm1
	vaddss	%xmm1, %xmm0, %xmm0
	cmpq	%r8, %rax
	je	.LBB2_7
	testb	$56, %al
	je	.LBB2_14
.LBB2_4:
	movq	%rax, %r9
	andq	$-8, %r9
	leaq	(%rdi,%rdx,4), %r10
	vxorps	%xmm1, %xmm1, %xmm1
	vmovss	%xmm0, %xmm1, %xmm0
	addq	%r9, %rdx
	.p2align	4
.LBB2_5:
	vaddps	(%r10,%r8,4), %ymm0, %ymm0
	addq	$8, %r8
	cmpq	%r8, %r9
	jne	.LBB2_5
	vextractf128	$1, %ymm0, %xmm1
	vaddps	%xmm1, %xmm0, %xmm0
	vshufpd	$1, %xmm0, %xmm0, %xmm1
	vaddps	%xmm1, %xmm0, %xmm0
	vmovshdup	%xmm0, %xmm1
	vaddss	%xmm1, %xmm0, %xmm0
	cmpq	%r9, %rax
	je	.LBB2_7
	.p2align	4
.LBB2_15:
	vaddss	(%rdi,%rdx,4), %xmm0, %xmm0
	incq	%rdx
	cmpq	%rdx, %rcx
	jne	.LBB2_15
.LBB2_7:
	vmovss	(%rsi), %xmm1
	.p2align	4
.LBB2_8:
	vaddss	%xmm0, %xmm1, %xmm2
	vmovd	%xmm1, %eax
	vmovd	%xmm2, %ecx
	lock		cmpxchgl	%ecx, (%rsi)
	vmovd	%eax, %xmm1
	jne	.LBB2_8
	vzeroupper
	retq
.LBB2_14:
	addq	%r8, %rdx
	jmp	.LBB2_15
.Lfunc_end2:
	.size	octants.second_1_range.body, .Lfunc_end2-octants.second_1_range.body

	.globl	octants.second_1_range
	.p2align	4
	.type	octants.second_1_range,@function
octants.second_1_range:
	pushq	%rax
	vstmxcsr	(%rsp)
	movl	$32832, %eax
	movq	%rdx, %rcx
	movq	%rsi, %rdx
	orl	(%rsp), %eax
	movl	%eax, 4(%rsp)
	vldmxcsr	4(%rsp)
	movq	(%rdi), %rax
	movq	8(%rdi), %rsi
	movq	(%rax), %rdi
	callq	octants.second_1_range.body
	vldmxcsr	(%rsp)
	xorl	%eax, %eax
	popq	%rcx
	retq
.Lfunc_end3:
	.size	octants.second_1_range, .Lfunc_end3-octants.second_1_range

	.p2align	4
	.type	octants.second_1_range.single.body,@function
octants.second_1_range.single.body:
	movq	%rcx, %rax
	subq	%rdx, %rax
	vxorps	%xmm0, %xmm0, %xmm0
	jle	.LBB4_7
	cmpq	$8, %rax
	jb	.LBB4_13
	cmpq	$64, %rax
	jae	.LBB4_8
	xorl	%r8d, %r8d
	jmp	.LBB4_4
.LBB4_8:
	leaq	192(%rdi,%rdx,4), %r9
	movq	%rax, %r8
	andq	$-64, %r8
	vxorps	%xmm0, %xmm0, %xmm0
	xorl	%r10d, %r10d
	vxorps	%xmm1, %xmm1, %xmm1
	vxorps	%xmm2, %xmm2, %xmm2
	vxorps	%xmm3, %xmm3, %xmm3
	.p2align	4
.LBB4_9:
	vaddps	-192(%r9,%r10,4), %zmm0, %zmm0
	vaddps	-128(%r9,%r10,4), %zmm1, %zmm1
	vaddps	-64(%r9,%r10,4), %zmm2, %zmm2
	vaddps	(%r9,%r10,4), %zmm3, %zmm3
	addq	$64, %r10
	cmpq	%r10, %r8
	jne	.LBB4_9
	vaddps	%zmm0, %zmm1, %zmm0
	vaddps	%zmm2, %zmm3, %zmm2
	vaddps	%zmm0, %zmm2, %zmm0
	vextractf64x4	$1, %zmm0, %ymm1
	vaddps	%zmm1, %zmm0, %zmm0
	vextractf128	$1, %ymm0, %xmm1
	vaddps	%xmm1, %xmm0, %xmm0
	vshufpd	$1, %xmm0, %xmm0, %xmm1
	vaddps	%xmm1, %xmm0, %xmm0
	vmovshdup	%xmm0, %xmm1
	vaddss	%xmm1, %xmm0, %xmm0
	cmpq	%r8, %rax
	je	.LBB4_7
	testb	$56, %al
	je	.LBB4_12
.LBB4_4:
	movq	%rax, %r9
	andq	$-8, %r9
	leaq	(%rdi,%rdx,4), %r10
	vxorps	%xmm1, %xmm1, %xmm1
	vmovss	%xmm0, %xmm1, %xmm0
	addq	%r9, %rdx
	.p2align	4
.LBB4_5:
	vaddps	(%r10,%r8,4), %ymm0, %ymm0
	addq	$8, %r8
	cmpq	%r8, %r9
	jne	.LBB4_5
	vextractf128	$1, %ymm0, %xmm1
	vaddps	%xmm1, %xmm0, %xmm0
	vshufpd	$1, %xmm0, %xmm0, %xmm1
	vaddps	%xmm1, %xmm0, %xmm0
	vmovshdup	%xmm0, %xmm1
	vaddss	%xmm1, %xmm0, %xmm0
	cmpq	%r9, %rax
	je	.LBB4_7
	.p2align	4
.LBB4_13:
	vaddss	(%rdi,%rdx,4), %xmm0, %xmm0
	incq	%rdx
	cmpq	%rdx, %rcx
	jne	.LBB4_13
.LBB4_7:
	vaddss	(%rsi), %xmm0, %xmm0
	vmovss	%xmm0, (%rsi)
	vzeroupper
	retq
.LBB4_12:
	addq	%r8, %rdx
	jmp	.LBB4_13
.Lfunc_end4:
	.size	octants.second_1_range.single.body, .Lfunc_end4-octants.second_1_range.single.body

	.globl	octants.second_1_range.single
	.p2align	4
	.type	octants.second_1_range.single,@function
octants.second_1_range.single:
	pushq	%rax
	vstmxcsr	(%rsp)
	movl	$32832, %eax
	movq	%rdx, %rcx
	movq	%rsi, %rdx
	orl	(%rsp), %eax
	movl	%eax, 4(%rsp)
	vldmxcsr	4(%rsp)
	movq	(%rdi), %rax
	movq	8(%rdi), %rsi
	movq	(%rax), %rdi
	callq	octants.second_1_range.single.body
	vldmxcsr	(%rsp)
	xorl	%eax, %eax
	popq	%rcx
	retq
.Lfunc_end5:
	.size	octants.second_1_range.single, .Lfunc_end5-octants.second_1_range.single

	.globl	octants.second_1_range.count
	.p2align	4
	.type	octants.second_1_range.count,@function
octants.second_1_range.count:
	movq	(%rdi), %rax
	movslq	8(%rax), %rax
	movq	%rax, %rcx
	sarq	$63, %rcx
	andnq	%rax, %rcx, %rax
	retq
.Lfunc_end6:
	.size	octants.second_1_range.count, .Lfunc_end6-octants.second_1_range.count

	.p2align	4
	.type	octants.second_2_serial.body,@function
octants.second_2_serial.body:
	movl	%edi, %eax
	movq	%rax, (%rsi)
	retq
.Lfunc_end7:
	.size	octants.second_2_serial.body, .Lfunc_end7-octants.second_2_serial.body

	.globl	octants.second_2_serial
	.p2align	4
	.type	octants.second_2_serial,@function
octants.second_2_serial:
	pushq	%rax
	vstmxcsr	(%rsp)
	movl	$32832, %eax
	orl	(%rsp), %eax
	movl	%eax, 4(%rsp)
	vldmxcsr	4(%rsp)
	movq	8(%rdi), %rax
	movq	16(%rdi), %rsi
	movl	(%rax), %edi
	callq	octants.second_2_serial.body
	vldmxcsr	(%rsp)
	xorl	%eax, %eax
	popq	%rcx
	retq
.Lfunc_end8:
	.size	octants.second_2_serial, .Lfunc_end8-octants.second_2_serial

	.section	".note.GNU-stack","",@progbits
