"""Wrong calls: PyTorch's users catch errors by their types, so ours are the same ones. The texts are our
own (test_errors.py).
"""

import copy
import importlib
import io
import pickle

import numpy as np

# By subject. `F` is the library, `fn` nn.functional; T, I, B, C and R make tensors of floating numbers,
# integer zeros, truth, complex ones, and numbers with gradients; D gives them another dtype.
CALLS = """
# ones
F.ones(2).cuda()
F.ones(2).to('cuda')
F.ones(2).to('cuda:0')
F.ones(2).to(F.device('cuda'))
F.ones(2, device='cuda')
F.ones(2).to('mps')
# tensor
F.tensor([1.0], device='cuda')
F.tensor(np.ones(4)[::-1])
F.tensor(np.array(['a']))
F.tensor(np.array([object()]))
F.tensor([None])
F.tensor(object())
F.tensor({})
F.tensor({1,2})
F.tensor([{}])
F.tensor([1, 'a'])
# zeros_like
F.zeros_like(T(2), device='cuda')
F.zeros_like(5)
F.zeros_like([1])
F.zeros_like(T(2), dtype='a')
# empty
F.empty(2, device='cuda')
F.empty(2**50)
# randn
F.randn(2, device='cuda')
F.randn(2, dtype=F.int64)
F.randn(2, out=I(2))
# arange
F.arange(2, device='cuda')
F.arange()
F.arange(5, 0)
F.arange(0, 5, 0)
F.arange(0, 5, -1)
F.arange(F.nan)
# as_tensor
F.as_tensor([1.0], device='cuda')
F.as_tensor(np.ones(4)[::-1])
# from_numpy
F.from_numpy(np.ones(2)).cuda()
F.from_numpy(np.ones(3, dtype=np.complex256))
F.from_numpy(np.ones(3, dtype=np.float128))
F.from_numpy(np.ones(3, dtype='M8[s]'))
F.from_numpy(np.array([object()]))
F.from_numpy(5)
# Linear
nn.Linear(2,2).cuda()
nn.Linear(2,2).to('cuda')
nn.Linear(2,2,device='cuda')
nn.Linear(3,4)(T(2,5))
nn.Linear(3,4)(I(2,3))
nn.Linear(3,4)(None)
# device
F.device('zzz')
F.device('cuda', -1)
F.device('cuda:zz')
F.device('cpu', 'a')
F.device()
F.device(None)
# operators and protocols
F.cuda.current_device()
F.cuda.synchronize()
F.cuda.get_device_name(0)
np.from_dlpack(R(2))
np.from_dlpack(D(T(2),'bfloat16'))
T(2,3).zzz
T(2,3)()
T(2,3,4).H
T(3).mT
T(3).mH
T(2).imag
len(T())
bool(T(0))
bool(T(2))
int(T(2))
float(T(2))
int(T(1)*F.nan)
int(T(1)*F.inf)
[1,2,3][T()]
range(T())
list(T())
next(iter(T(0)))
T(2) in [T(2)]
T(3) in [T(2)]
None in T(2)
'a' in T(2)
[1] in T(2)
T(3) in T(2)
format(T(2), '.2f')
f"{T(2):d}"
f"{T():d}"
divmod(T(2), 2)
divmod(2, T(2))
round(T(2), 2)
round(T(2), 'a')
round(T(2))
T(2) @ 5
5 @ T(2)
T(2) ** 'a'
T(2) + None
# Generator
F.Generator('zzz')
F.Generator().set_state(T(2))
# set_rng_state
F.set_rng_state(T(2))
# manual_seed
F.manual_seed(2**70)
F.manual_seed(-2**70)
F.manual_seed(None)
# set_default_dtype
F.set_default_dtype(F.int64)
F.set_default_dtype('float32')
# set_default_device
F.set_default_device('zzz')
# set_num_threads
F.set_num_threads(0)
# set_grad_enabled
F.set_grad_enabled('a')
F.set_grad_enabled()
# load
F.load(5)
F.load(None)
F.load()
# save
F.save(lambda: 1, io.BytesIO())
F.save(T(2))
# save and load
b=io.BytesIO(); F.save({'a':T(2)}, b); b.seek(0); r=F.load(b, map_location='cuda')
b=io.BytesIO(); F.save({'a':T(2)}, b); b.seek(0); r=F.load(b, map_location='zzz')
b=io.BytesIO(); F.save({'a':T(2)}, b); b.seek(0); r=F.load(b, mmap=True)
b=io.BytesIO(); F.save(nn.Linear(2,2), b); b.seek(0); r=F.load(b)
b=io.BytesIO(pickle.dumps(object)); r=F.load(b)
# __dlpack__
R(2).__dlpack__()
T(2).__dlpack__(stream=1)
T(2).__dlpack__(stream='a')
T(2).__dlpack__(zzz=1)
T(2).__dlpack__(copy=5)
# __dlpack_device__
T(2).__dlpack_device__(1)
# writes and attributes
c=T(2).__dlpack__(); F.from_dlpack(c); F.from_dlpack(c)
del_=T(2); del del_.shape
x=T(2); x.shape=(1,2)
x=T(2); x.grad=5
x=T(2); x.grad=T(3)
x=T(2); x.grad=D(T(2),'float64')
x=T(2); x.data=5
x=R(2); x.data=I(2)
x=I(2); x.requires_grad=True
x=T(2); x.is_leaf=5
x=R(2)*2; x.requires_grad=False
x=T(2); x.dtype=F.int64
x=T(2); x.device='cpu'
x=T(2); x.T=5
operator_=__import__('operator'); operator_.index(T(1))
x=I(2); x+=1.5
x=I(2); x/=2
x=I(2); x//=2.0
x=I(2); x*=1.5
x=I(2); x-=True
x=B(2); x+=1
x=B(2); x*=2
x=B(2); x-=True
x=B(2); x&=1
x=T(2); x+=1j
x=T(2); x+=C(2)
x=T(2); x+=T(2,2)
x=T(2); x+=None
x=T(2); x+='a'
x=T(2); x&=1
x=T(2); x**='a'
x=T(2); x<<=1
x=I(2); x**=-1
x=I(2); x%=0
x=R(2); x+=1
x=R(2); x[0]=1
x=R(2); x.zero_()
x=R(2); x.view(2).add_(1)
x=T(2); x.retain_grad()
x=R(2); copy.deepcopy(x*2)
# from_dlpack
F.from_dlpack(np.array(['a']))
F.from_dlpack(np.array([1],dtype='>i4'))
F.from_dlpack(np.ones(3), device='cuda')
F.from_dlpack(np.ones(3), copy='a')
# Tensor
F.Tensor('a')
F.Tensor(-1)
F.Tensor(2, dtype=F.float64)
# FloatTensor
F.FloatTensor(2, 'a')
# LongTensor
F.LongTensor(T(2))
# Size
F.Size('a')
F.Size([1.5])
F.Size(5)
F.Size([T()])
F.Size((2,3)) + 5
# iinfo
F.iinfo(F.float32)
# finfo
F.finfo(F.int32)
F.finfo('a')
# frombuffer
F.frombuffer(b'', dtype=F.float32)
F.frombuffer(b'abc', dtype=F.float32)
F.frombuffer(bytearray(8), dtype=F.float32, offset=9)
F.frombuffer(bytearray(8), dtype=F.float32, offset=1)
F.frombuffer(bytearray(8), dtype=F.float32, count=3)
F.frombuffer(bytearray(8), dtype=F.float32, count=0)
# zzz
T(2,3).zzz()
# fmod
F.fmod(I(2), 0)
F.fmod(I(2), I(2))
# div
F.div(I(2), 0, rounding_mode='floor')
F.div(I(2), I(2), rounding_mode='trunc')
F.div(T(2), 2, 'floor')
F.div(T(2), 2, rounding_mode='zzz')
F.div(T(2), 2, rounding_mode=5)
# backward
x=R(2); y=x.exp(); y+=1; y.sum().backward()
x=R(2); y=(x*x).sum(); y.backward(); y.backward()
x=R(2); (x*x).backward()
x=R(2); (x*x).backward(T(3))
x=R(2); (x*x).backward('a')
x=R(2); (x*x).backward(1.0)
x=R(2); (x*x).backward(C(2))
x=R(2); (x*x).sum().backward(inputs=[])
x=R(2); (x*x).sum().backward(inputs=T(2))
x=R(2); (x*x).sum().backward(inputs=5)
x=R(2); (x*x).sum().backward(zzz=1)
T(2).sum().backward()
F.autograd.backward(5)
F.autograd.backward([T(2)])
F.autograd.backward(R(2))
x=R(2); F.autograd.grad(x, x)
x=R(2); F.autograd.grad(x.sum(), [x, T(2)])
x=R(2); F.autograd.grad(x*1, x, T(3))
x=R(2); F.autograd.grad(x*1, x, 5)
x=R(2); F.autograd.grad((x*1, x*2), x, [T(2)])
x=R(2); F.autograd.grad(x*1, x, T(2), is_grads_batched=True)
x=R(2); F.autograd.grad(x.sum(), x, zzz=1)
x=R(2); g,=F.autograd.grad((x*x).sum(), x); g.sum().backward()
x=R(2); r=F.autograd.grad((x*x).sum(), [x, R(3)], materialize_grads=True, allow_unused=False)
x=T(2); x.register_hook(lambda g: g)
x=R(2); x.register_hook(lambda g: 'a'); x.sum().backward()
x=R(2); x.register_hook(lambda g: T(3)); x.sum().backward()
x=R(2); x.register_hook(lambda g: I(2)); x.sum().backward(); r=x.grad
x=R(2); x.register_hook(lambda: 1); x.sum().backward()
x=R(2); x.register_hook(lambda g: 1/0); x.sum().backward()
# grad
F.autograd.grad(R(2).sum(), [])
F.autograd.grad(R(2).sum(), R(2))
F.autograd.grad(T(2).sum(), R(2))
F.autograd.grad([], R(2))
F.autograd.grad(R(2).sum(), 5)
F.autograd.grad(5, R(2))
# as_strided
T(2).as_strided((3,), (1,))
T(2).as_strided((2,), (-1,))
T(2).as_strided((2,), (1,), 5)
T(2).as_strided((2,), (1,), -1)
T(2).as_strided((2,2), (1,))
T(2).as_strided((-2,), (1,))
# stride
T(2,3).stride(5)
# size
T(2,3).size(5)
T(2,3).size('a')
T(2,3).size(1.5)
# dim
T(2,3).dim(1)
# contiguous
T(2,3).contiguous(memory_format=F.channels_last)
T(2,3).contiguous(memory_format='a')
# to
T(2,3).to(memory_format=F.channels_last)
T(2).to('float64')
T(2).to(np.float32)
T(2).to(dtype='float32')
# clone
T(2,3).clone(memory_format=F.channels_last)
T(2,3).clone(5)
# data_ptr
T(2,3).data_ptr(1)
# storage_offset
T(2,3).storage_offset(1)
# item
T(2,3).item()
T(0).item()
# type
T(2).type(5)
# float
T(2).float(5)
# half
T(2).half(memory_format=5)
# view
T(2).view()
T(2).view(None)
T(2).view(2.0)
T(2).view((2.0,))
T(2).view('a')
T(2).view(I())
# reshape
T(0).reshape(0, -1)
T(2).reshape()
T(2).reshape(None)
T(2).reshape('a')
# expand
T(2).expand()
T(2).expand(-1, -1)
T(2).expand(-1, 2)
T(2).expand(-2)
T(2).expand(3)
T(2).expand('a')
# permute
T(2,3).permute()
T(2,3).permute(0)
T(2,3).permute(0, 0)
T(2,3).permute(0, 2)
T(2,3).permute('a')
T(2,3).permute(None)
# transpose
T(2,3).transpose(0)
T(2,3).transpose(0, 'a')
F.transpose([1,2], 0, 1)
# t
T(2,3).t(1)
# flatten
T(2,3).flatten(5)
T(2,3).flatten(1, 0)
T(2,3).flatten('a')
# squeeze
T(2,3).squeeze('a')
T(2,3).squeeze((0, 0))
# unsqueeze
T(2,3).unsqueeze()
T(2,3).unsqueeze(1.5)
T(2,3).unsqueeze(-5)
# repeat
T(2,3).repeat()
T(2,3).repeat(2)
T(2,3).repeat(-1, 1)
T(2,3).repeat('a')
T(2,3).repeat(1.5, 1)
# tile
T(2,3).tile(-1)
# split
T(2,3).split(0)
T(2,3).split(-1)
T(2,3).split([1])
T(2,3).split([1, 2])
T(2,3).split([3, -1])
T(2,3).split('a')
# chunk
T(2,3).chunk(0)
T(2,3).chunk(-1)
T(2,3).chunk(1.5)
T(2,3).chunk('a')
T().chunk(2)
# unbind
T().unbind()
T(2,3).unbind(5)
T(2,3).unbind('a')
F.unbind([1,2])
# select
T().select(0, 0)
T(2,3).select(0, 2)
T(2,3).select(0, -3)
T(2,3).select(0, 'a')
T(2,3).select(0, 1.5)
# narrow
T(2,3).narrow(0, 0, 3)
T(2,3).narrow(0, -3, 1)
T(2,3).narrow(0, 0, -1)
T(2,3).narrow(0, 3, 0)
T(2,3).narrow(0, 'a', 1)
T(2,3).narrow(0, T(), 1)
# unfold
T(2,3).unfold(0, 3, 1)
T(2,3).unfold(0, 1, 0)
T(2,3).unfold(0, -1, 1)
T(2,3).unfold(0, 1, -1)
T(2,3).unfold(5, 1, 1)
# diagonal
T(2,3).diagonal(dim1=0, dim2=0)
T(2,3).diagonal(dim1=5)
T(3).diagonal()
T(2,3).diagonal('a')
# movedim
T(2,3).movedim(0, 5)
T(2,3).movedim((0,0), (0,1))
T(2,3).movedim('a', 0)
# cat
F.cat()
F.cat(T(2,3))
F.cat([])
F.cat([1, 2])
F.cat([T(2), 1])
F.cat([T(2), None])
# stack
F.stack([])
F.stack(T(2,3))
F.stack([T(2), T(3)])
F.stack([T(2), 1])
F.stack([T(2)], 5)
F.stack((x for x in [T(2)]))
# hstack
F.hstack([])
# vstack
F.vstack([])
F.vstack(T(2,3))
# gather
F.gather(T(2,3), 1, I(2,4)+3)
F.gather(T(2,3), 1, I(3,3))
F.gather(T(2,3), 1, I(2))
F.gather(T(2,3), 1, I(2,3)-1)
F.gather(T(2,3), 5, I(2,3))
F.gather(T(2,3), 1, D(I(2,3),'uint8'))
# scatter
F.scatter(T(2,3), 1, I(2,3)+3, T(2,3))
F.scatter(T(2,3), 1, I(2,3)-1, T(2,3))
F.scatter(T(2,3), 1, I(2,3), T(2,2))
F.scatter(T(2,3), 1, I(2), T(2))
F.scatter(T(2,3), 1, I(2,3), I(2,3))
F.scatter(T(2,3), 1, I(2,3), 'a')
# scatter_add
F.scatter_add(T(2,3), 1, I(2,3)+3, T(2,3))
F.scatter_add(T(2,3), 1, I(2,3), 1.0)
F.scatter_add(T(2,3), 1, I(2,3), I(2,3))
F.scatter_add(T(2,3), 1, I(2,3), D(T(2,3),'float64'))
# index_select
F.index_select(T(2,3), 0, I(2)+2)
F.index_select(T(2,3), 0, I(2,2))
F.index_select(T(2,3), 0, T(2))
F.index_select(T(2,3), 0, [0])
F.index_select(T(2,3), 5, I(2))
F.index_select(D(T(2,3),'bfloat16'), 0, I(2)+2)
# index_add
F.index_add(T(2,3), 0, I(2)+2, T(2,3))
F.index_add(T(2,3), 0, I(2)-1, T(2,3))
F.index_add(T(2,3), 0, I(2), T(3,3))
F.index_add(T(2,3), 0, I(2), T(2,4))
F.index_add(T(2,3), 0, I(2), I(2,3))
F.index_add(T(2,3), 0, T(2), T(2,3))
# index_copy
F.index_copy(T(2,3), 0, I(2)+2, T(2,3))
F.index_copy(T(2,3), 0, I(2)-1, T(2,3))
F.index_copy(T(2,3), 0, I(2)-3, T(2,3))
F.index_copy(T(2,3), 0, I(2), T(2,4))
F.index_copy(T(2,3), 0, I(2), I(2,3))
# index_fill
F.index_fill(T(2,3), 0, I(2)+2, 1)
F.index_fill(T(2,3), 0, I(2)-3, 1)
F.index_fill(T(2,3), 0, I(2), T(2))
F.index_fill(T(2,3), 0, I(2), 1j)
# index_put
F.index_put(T(2,3), (I(2)+2,), T(2,3))
F.index_put(T(2,3), (I(2)-3,), T(2,3))
F.index_put(T(2,3), (I(2),I(2)), T(3))
F.index_put(T(2,3), (I(2),I(2)), I(2))
F.index_put(T(2,3), (I(2),I(2),I(2)), T(2))
F.index_put(T(2,3), (T(2),), T(2,3))
# take
F.take(T(2,3), I(2)+6)
F.take(T(2,3), I(2)-7)
F.take(T(2,3), T(2))
F.take(T(0), I(2))
F.take(T(2,3), I(2).int())
# take_along_dim
F.take_along_dim(T(2,3), I(6)+6)
F.take_along_dim(T(2,3), T(2,3), 1)
F.take_along_dim(T(2,3), I(2), 1)
# embedding
fn.embedding(I(2)+4, T(4,3))
fn.embedding(I(2)-1, T(4,3))
fn.embedding(I(2), T(4))
fn.embedding(I(2), T(4,3), padding_idx=4)
fn.embedding(I(2), T(4,3), padding_idx='a')
fn.embedding(T(2), T(4,3))
# one_hot
fn.one_hot(I(2)+3, 2)
fn.one_hot(I(2)-1)
fn.one_hot(I(2), -2)
fn.one_hot(I(2), 0)
fn.one_hot(I(2).int())
fn.one_hot(I(0))
# indexing
T(2,3)[5]
T(2,3)[-3]
T(2,3)[0,5]
T(2,3)[0,0,0]
T()[0]
T(2,3)[1.5]
T(2,3)[object()]
T(2,3)[{}]
T(2,3)[[0,5]]
T(2,3)[T(2)]
T(2,3)[B(3)]
T(2,3)[B(2,4)]
T(2,3)[B(2,3,1)]
T(2,3)[I(2)+2]
T(2,3)[I(2)-3]
T(2,3)[:,I(2)+3]
T(2,3)[I(2),I(3)]
T(2,3)[I(2),I(2),I(2)]
T(2,3)[np.array([5])]
T(2,3)[np.array([True])]
# Linear in use
m=nn.Linear(3,4); m.weight=T(4,3)
m=nn.Linear(3,4); m.weight=None; m(T(2,3))
m=nn.Linear(3,4); del m.weight; m(T(2,3))
m=nn.Linear(3,4); m.register_parameter('weight', 5)
m=nn.Linear(3,4); m.register_parameter('a.b', nn.Parameter(T(2)))
m=nn.Linear(3,4); m.register_parameter('', nn.Parameter(T(2)))
m=nn.Linear(3,4); m.register_parameter('forward', nn.Parameter(T(2)))
m=nn.Linear(3,4); m.register_parameter(5, nn.Parameter(T(2)))
m=nn.Linear(3,4); m.register_buffer('b', 5)
m=nn.Linear(3,4); m.register_buffer(5, T(2))
m=nn.Linear(3,4); m.register_buffer('b', None); m.b='a'
m=nn.Linear(3,4); m.add_module('m', 5)
m=nn.Linear(3,4); m.add_module('a.b', nn.ReLU())
m=nn.Linear(3,4); m.add_module(5, nn.ReLU())
m=nn.Linear(3,4); m.load_state_dict({})
m=nn.Linear(3,4); m.load_state_dict(5)
m=nn.Linear(3,4); m.load_state_dict({5: T(2)})
m=nn.Linear(3,4); m.load_state_dict({'weight': T(4,3), 'bias': T(4)}, zzz=True)
m=nn.Linear(3,4); m.to(F.int64)
m=nn.Linear(3,4); m.to('zzz')
m=nn.Linear(3,4); m.apply(5)
m=nn.Linear(3,4); m.train('a')
m=nn.Linear(3,4); m.eval(1)
m=nn.Linear(3,4); m.requires_grad_('a')
m=nn.Linear(3,4); m.get_submodule('zzz')
m=nn.Linear(3,4); m.get_submodule('weight')
m=nn.Linear(3,4); m.get_parameter('a.b')
m=nn.Linear(3,4); m.get_parameter('forward')
m=nn.Linear(3,4); m.get_buffer('weight')
m=nn.Linear(3,4); m.get_extra_state()
# Module in use
m=nn.Module(); m(5)
m=nn.Module(); m.forward(5)
# Module
nn.Module(5)
nn.Module(zzz=5)
# Sequential
nn.Sequential(5)
nn.Sequential(nn.ReLU)
nn.Sequential([nn.ReLU()])
nn.Sequential({'a': nn.ReLU()})
nn.Sequential(nn.ReLU())[5]
nn.Sequential(nn.ReLU())[-2]
# Sequential in use
s=nn.Sequential(nn.ReLU()); s[5]=nn.ReLU()
s=nn.Sequential(nn.ReLU()); s[0]=5
s=nn.Sequential(nn.ReLU()); s.append(5)
s=nn.Sequential(nn.ReLU()); s.extend(5)
s=nn.Sequential(nn.ReLU()); s.insert(9, nn.ReLU())
s=nn.Sequential(nn.ReLU()); s.insert(0, 5)
# ModuleList
nn.ModuleList(5)
nn.ModuleList([5])
nn.ModuleList([nn.ReLU])
nn.ModuleList([nn.ReLU()])[5]
nn.ModuleList([nn.ReLU()])['a']
nn.ModuleList([nn.ReLU()])[T()]
# ModuleList in use
s=nn.ModuleList([nn.ReLU()]); s.append(5)
s=nn.ModuleList([nn.ReLU()]); s.extend(5)
s=nn.ModuleList([nn.ReLU()]); s[3]=nn.ReLU()
s=nn.ModuleList([nn.ReLU()]); s[0]=5
s=nn.ModuleList([nn.ReLU()]); s+5
# ModuleDict
nn.ModuleDict(5)
nn.ModuleDict({'a': 5})
nn.ModuleDict({5: nn.ReLU()})
nn.ModuleDict({'a.b': nn.ReLU()})
nn.ModuleDict({'': nn.ReLU()})
nn.ModuleDict({'keys': nn.ReLU()})
# ModuleDict in use
s=nn.ModuleDict({'a': nn.ReLU()}); del s['b']
s=nn.ModuleDict({'a': nn.ReLU()}); s['c']=5
s=nn.ModuleDict({'a': nn.ReLU()}); s.update(5)
s=nn.ModuleDict({'a': nn.ReLU()}); s.update([('a',)])
s=nn.ModuleDict({'a': nn.ReLU()}); s(T(2))
# ParameterList
nn.ParameterList([T(2)])[5]
nn.ParameterList(5)
# ParameterDict
nn.ParameterDict(5)
nn.ParameterDict({5: T(2)})
# Parameter
nn.Parameter(I(2))
nn.Parameter(zzz=1)
nn.Parameter(T(2)).add_(1)
# Conv2d
nn.Conv2d(3,4,3)(T(1,2,8,8))
nn.Conv2d(3,4,3)(T(8,8))
nn.Conv2d(3,4,3)(T(1,1,3,8,8))
nn.Conv2d(3,4,3)(T(1,3,2,2))
nn.Conv2d(3,4,3)(I(1,3,8,8))
nn.Conv2d(3,4,3)(D(T(1,3,8,8),'float64'))
# Conv1d
nn.Conv1d(3,4,3)(T(1,2,8))
nn.Conv1d(3,4,3)(T(8))
nn.Conv1d(3,4,3)(T(1,3,2))
nn.Conv1d(3,4,(3,3))(T(1,3,8))
nn.Conv1d(3,4,3,stride=(1,1))(T(1,3,8))
# BatchNorm1d
nn.BatchNorm1d(3)(T(2,4))
nn.BatchNorm1d(3)(T(3))
nn.BatchNorm1d(3)(T(1,3))
nn.BatchNorm1d(3)(T(2,3,4,5))
nn.BatchNorm1d(3)(I(2,3))
nn.BatchNorm1d(3)(D(T(2,3),'float64'))
# BatchNorm2d
nn.BatchNorm2d(3)(T(2,3))
nn.BatchNorm2d(3)(T(2,4,5,5))
nn.BatchNorm2d(3)(T(1,3,1,1))
nn.BatchNorm2d(3)(T(3,4,4))
# LayerNorm
nn.LayerNorm(3)(T(2,4))
nn.LayerNorm((2,3))(T(3))
nn.LayerNorm(())(T(2))
nn.LayerNorm('a')
nn.LayerNorm(-1)
nn.LayerNorm(3)(D(T(2,3),'float64'))
# GroupNorm
nn.GroupNorm(2,3)
nn.GroupNorm(2,4)(T(2,3,4))
nn.GroupNorm(0,4)
nn.GroupNorm(2,4)(T(4))
# InstanceNorm1d
nn.InstanceNorm1d(3)(T(2,3,1))
# InstanceNorm2d
nn.InstanceNorm2d(3)(T(2,3))
# Embedding
nn.Embedding(4,3)(I(2)+4)
nn.Embedding(4,3)(I(2)-1)
nn.Embedding(4,3)(T(2))
nn.Embedding(4,3)(D(I(2),'int16'))
nn.Embedding(4,3)(5)
nn.Embedding(4,3)([0])
# Dropout
nn.Dropout(1.5)
nn.Dropout(-0.1)
nn.Dropout('a')
nn.Dropout(None)
nn.Dropout(0.5)(I(2))
nn.Dropout(0.5)(5)
# Dropout1d
nn.Dropout1d(0.5)(T(2))
# Dropout2d
nn.Dropout2d(0.5)(T(2))
# Softmax
nn.Softmax(5)(T(2,3))
nn.Softmax('a')(T(2,3))
nn.Softmax(1)(I(2,3))
nn.Softmax(1)(C(2,3))
nn.Softmax(1)(B(2,3))
# LogSoftmax
nn.LogSoftmax(1)(I(2,3))
# Softmin
nn.Softmin(1)(I(2,3))
# Softmax2d
nn.Softmax2d()(T(2))
# ReLU
nn.ReLU(5, 6)
nn.ReLU()(C(2))
nn.ReLU()(5)
nn.ReLU(inplace=True)(R(2))
# GELU
nn.GELU('zzz')(T(2))
nn.GELU()(I(2))
# SiLU
nn.SiLU()(I(2))
# Mish
nn.Mish()(I(2))
# ELU
nn.ELU()(I(2))
# SELU
nn.SELU()(I(2))
# Softplus
nn.Softplus()(I(2))
# LeakyReLU
nn.LeakyReLU('a')(T(2))
nn.LeakyReLU()(I(2))
# PReLU
nn.PReLU(3)(T(2,2))
nn.PReLU('a')
# Hardtanh
nn.Hardtanh(1,-1)
# Hardsigmoid
nn.Hardsigmoid()(I(2))
# Hardswish
nn.Hardswish()(I(2))
# Threshold
nn.Threshold(1,'a')(T(2))
# GLU
nn.GLU()(T(3))
nn.GLU(5)(T(2))
nn.GLU()(T())
# Flatten
nn.Flatten(5)(T(2,3))
nn.Flatten(1,0)(T(2,3))
nn.Flatten('a')(T(2,3))
nn.Flatten()(T(3))
# Unflatten
nn.Unflatten(1,(2,2))(T(2,3))
nn.Unflatten(1,5)
nn.Unflatten(5,(2,2))(T(2,4))
# Identity
nn.Identity(5, a=5)(T(2), T(2))
# MaxPool2d
nn.MaxPool2d(2)(T(2,2))
nn.MaxPool2d(0)(T(1,2,4,4))
nn.MaxPool2d(-1)(T(1,2,4,4))
nn.MaxPool2d(9)(T(1,2,4,4))
nn.MaxPool2d(2, padding=2)(T(1,2,4,4))
nn.MaxPool2d(2, padding=-1)(T(1,2,4,4))
# MaxPool1d
nn.MaxPool1d(2)(T(4))
nn.MaxPool1d(2)(T(1,2,1))
# AvgPool2d
nn.AvgPool2d(2, divisor_override=0)(T(1,2,4,4))
nn.AvgPool2d(2, padding=2)(T(1,2,4,4))
nn.AvgPool2d(9)(T(1,2,4,4))
# AdaptiveAvgPool2d
nn.AdaptiveAvgPool2d(-1)(T(1,2,4,4))
nn.AdaptiveAvgPool2d((1,2,3))(T(1,2,4,4))
nn.AdaptiveAvgPool2d(2)(T(4))
nn.AdaptiveAvgPool2d(2)(I(1,2,4,4))
# AdaptiveMaxPool2d
nn.AdaptiveMaxPool2d(2)(T(4))
# CrossEntropyLoss
nn.CrossEntropyLoss()(T(2,3), I(3))
nn.CrossEntropyLoss()(T(2,3), I(2)+3)
nn.CrossEntropyLoss()(T(2,3), I(2)-1)
nn.CrossEntropyLoss()(T(2,3), T(2))
nn.CrossEntropyLoss()(T(2,3), I(2,3))
nn.CrossEntropyLoss()(T(2,3), I(2,1))
# NLLLoss
nn.NLLLoss()(T(2,3), I(2)+3)
nn.NLLLoss()(T(2,3), I(3))
nn.NLLLoss()(T(2,3), T(2))
nn.NLLLoss()(T(2,3), T(2,3))
nn.NLLLoss()(I(2,3), I(2))
nn.NLLLoss()(T(), I())
# MSELoss
nn.MSELoss()(T(2,3), T(2,4))
nn.MSELoss()(I(2,3), I(2,3))
nn.MSELoss()(B(2,3), B(2,3))
nn.MSELoss(reduction='zzz')(T(2), T(2))
# L1Loss
nn.L1Loss()(T(2,3), T(2,4))
nn.L1Loss()(I(2,3), I(2,3))
# SmoothL1Loss
nn.SmoothL1Loss(beta=-1.0)(T(2), T(2))
nn.SmoothL1Loss()(T(2,3), T(2,4))
nn.SmoothL1Loss()(I(2,3), I(2,3))
nn.SmoothL1Loss(beta='a')(T(2), T(2))
# HuberLoss
nn.HuberLoss(delta=0)(T(2), T(2))
nn.HuberLoss(delta=-1)(T(2), T(2))
# BCELoss
nn.BCELoss()(T(2,3), T(2,4))
nn.BCELoss()(T(2,3), T(3))
nn.BCELoss()(T(2,3), I(2,3))
nn.BCELoss()(T(2)+1, T(2))
nn.BCELoss()(-T(2), T(2))
nn.BCELoss()(T(2)*F.nan, T(2))
# BCEWithLogitsLoss
nn.BCEWithLogitsLoss()(T(2,3), T(2,4))
nn.BCEWithLogitsLoss()(T(2,3), T(3))
nn.BCEWithLogitsLoss()(T(2,3), I(2,3))
nn.BCEWithLogitsLoss()(I(2,3), I(2,3))
nn.BCEWithLogitsLoss()(T(2,3), B(2,3))
nn.BCEWithLogitsLoss(pos_weight=T(2))(T(2,3), T(2,3))
# KLDivLoss
nn.KLDivLoss(reduction='zzz')(T(2), T(2))
nn.KLDivLoss()(T(2,3), T(2,4))
nn.KLDivLoss()(T(2,3), I(2,3))
# TripletMarginLoss
nn.TripletMarginLoss(margin=-1)(T(2,3), T(2,3), T(2,3))
nn.TripletMarginLoss(margin=0)(T(2,3), T(2,3), T(2,3))
nn.TripletMarginLoss()(T(2,3), T(2,4), T(2,3))
nn.TripletMarginLoss()(T(2,3), T(3), T(2,3))
# CosineEmbeddingLoss
nn.CosineEmbeddingLoss()(T(2,3), T(2,3), T(3))
nn.CosineEmbeddingLoss()(T(2,3), T(2,4), T(2))
# MarginRankingLoss
nn.MarginRankingLoss()(T(2,3), T(2), T(2))
# HingeEmbeddingLoss
nn.HingeEmbeddingLoss()(T(2), T(3))
# MultiheadAttention
nn.MultiheadAttention(8,3)
nn.MultiheadAttention(0,2)
nn.MultiheadAttention(8,2)(T(3,1,8), T(3,1,8))
nn.MultiheadAttention(8,2)(T(3,1,4), T(3,1,8), T(3,1,8))
nn.MultiheadAttention(8,2)(T(3,1,8), T(3,1,4), T(3,1,8))
nn.MultiheadAttention(8,2)(T(3,2,8), T(3,1,8), T(3,1,8))
# scaled_dot_product_attention
fn.scaled_dot_product_attention(T(8), T(8), T(8))
fn.scaled_dot_product_attention(T(1,2,4,8), T(1,2,4,4), T(1,2,4,8))
fn.scaled_dot_product_attention(T(1,3,4,8), T(1,2,4,8), T(1,2,4,8))
fn.scaled_dot_product_attention(T(1,3,4,8), T(1,2,4,8), T(1,2,4,8), enable_gqa=True)
fn.scaled_dot_product_attention(T(1,2,4,8), T(1,2,4,8), T(1,2,4,8), attn_mask=I(4,4))
fn.scaled_dot_product_attention(T(1,2,4,8), D(T(1,2,4,8),'float64'), T(1,2,4,8))
# dropout
fn.dropout(T(2), 2.0)
fn.dropout(T(2), -0.5)
fn.dropout(T(2), 'a')
fn.dropout(I(2), 0.5)
fn.dropout(B(2), 0.5)
fn.dropout(R(2), 0.5, inplace=True)
# xavier_uniform_
init.xavier_uniform_(T(2))
init.xavier_uniform_(T())
# kaiming_uniform_
init.kaiming_uniform_(T(2))
init.kaiming_uniform_(T(2,2), mode='zzz')
init.kaiming_uniform_(T(2,2), nonlinearity='zzz')
# orthogonal_
init.orthogonal_(T(2))
# eye_
init.eye_(T(2))
# dirac_
init.dirac_(T(2))
init.dirac_(T(3,2,2), groups=2)
# sparse_
init.sparse_(T(2), 0.5)
# trunc_normal_
init.trunc_normal_(T(2), a=3, b=1)
init.trunc_normal_(T(2), std=0)
# calculate_gain
init.calculate_gain('zzz')
init.calculate_gain('leaky_relu', 'a')
# uniform_
init.uniform_(T(2), 1, 0)
init.uniform_(I(2))
T(2).uniform_(1, 0)
T(2).uniform_(0, F.inf)
T(2).uniform_(F.nan, 1)
# normal_
init.normal_(T(2), 0, -1)
init.normal_(I(2))
T(2).normal_(0, -1)
I(2).normal_()
# constant_
init.constant_(T(2), 'a')
# SGD
optim.SGD([], lr=0.1)
optim.SGD([R(2)*2], lr=0.1)
optim.SGD([5], lr=0.1)
optim.SGD(5, lr=0.1)
optim.SGD(None, lr=0.1)
optim.SGD(R(2), lr=0.1)
# optimizers in use
x=R(2); optim.SGD([{'params': [x]}, {'params': [x]}], lr=0.1)
x=R(2); optim.SGD([('a', x), R(2)], lr=0.1)
x=R(2); o=optim.SGD([x], 0.1); o.add_param_group({'params': x})
x=R(2); o=optim.SGD([x], 0.1); o.add_param_group(5)
x=R(2); o=optim.SGD([x], 0.1); o.add_param_group({'params': [5]})
x=R(2); o=optim.SGD([x], 0.1); o.add_param_group({})
# Adam
optim.Adam([R(2)], lr=-1)
optim.Adam([R(2)], betas=(1.0, 0.9))
optim.Adam([R(2)], betas=(0.9, -0.1))
optim.Adam([R(2)], betas=0.9)
optim.Adam([R(2)], betas=(0.9,))
optim.Adam([R(2)], betas='ab')
# AdamW
optim.AdamW([R(2)], lr=-1)
optim.AdamW([R(2)], betas=(1.0, 0.9))
optim.AdamW([R(2)], weight_decay=-1)
# Optimizer
optim.Optimizer([R(2)], {}).step()
optim.Optimizer([], {})
optim.Optimizer(5, {})
# StepLR
sched.StepLR(5, 1)
sched.StepLR(None, 1)
o=optim.SGD([R(2)], 0.1); sched.StepLR(o)
o=optim.SGD([R(2)], 0.1); s=sched.StepLR(o, 0); s.step()
o=optim.SGD([R(2)], 0.1); s=sched.StepLR(o, 'a'); s.step()
o=optim.SGD([R(2)], 0.1); sched.StepLR(o, 1, last_epoch=5)
# LambdaLR
o=optim.SGD([R(2)], 0.1); sched.LambdaLR(o, 5)
o=optim.SGD([R(2)], 0.1); sched.LambdaLR(o, [lambda e: 1, lambda e: 1])
o=optim.SGD([R(2)], 0.1); sched.LambdaLR(o, lambda e: 'a')
# MultiStepLR
o=optim.SGD([R(2)], 0.1); sched.MultiStepLR(o, 5)
# CosineAnnealingLR
o=optim.SGD([R(2)], 0.1); s=sched.CosineAnnealingLR(o, 0); s.step()
o=optim.SGD([R(2)], 0.1); sched.CosineAnnealingLR(o)
# OneCycleLR
o=optim.SGD([R(2)], 0.1); sched.OneCycleLR(o, 0.1)
o=optim.SGD([R(2)], 0.1); sched.OneCycleLR(o, 0.1, total_steps=0)
o=optim.SGD([R(2)], 0.1); sched.OneCycleLR(o, 0.1, epochs=0, steps_per_epoch=1)
o=optim.SGD([R(2)], 0.1); sched.OneCycleLR(o, 0.1, epochs=1, steps_per_epoch=0)
o=optim.SGD([R(2)], 0.1); sched.OneCycleLR(o, 0.1, total_steps=5, pct_start=2.0)
o=optim.SGD([R(2)], 0.1); sched.OneCycleLR(o, 0.1, total_steps=5, pct_start='a')
# CyclicLR
o=optim.SGD([R(2)], 0.1, momentum=.9); sched.CyclicLR(o, 0.1, 0.2, mode='zzz')
o=optim.SGD([R(2)], 0.1, momentum=.9); sched.CyclicLR(o, [0.1,.1], 0.2)
# CosineAnnealingWarmRestarts
o=optim.SGD([R(2)], 0.1); sched.CosineAnnealingWarmRestarts(o, 0)
o=optim.SGD([R(2)], 0.1); sched.CosineAnnealingWarmRestarts(o, 1.5)
o=optim.SGD([R(2)], 0.1); sched.CosineAnnealingWarmRestarts(o, 1, 0)
o=optim.SGD([R(2)], 0.1); s=sched.CosineAnnealingWarmRestarts(o, 1); s.step(-1)
# ReduceLROnPlateau
o=optim.SGD([R(2)], 0.1); sched.ReduceLROnPlateau(o, mode='zzz')
o=optim.SGD([R(2)], 0.1); sched.ReduceLROnPlateau(o, factor=1.0)
o=optim.SGD([R(2)], 0.1); sched.ReduceLROnPlateau(o, threshold_mode='zzz')
o=optim.SGD([R(2)], 0.1); sched.ReduceLROnPlateau(o, min_lr=[0.1,0.2])
o=optim.SGD([R(2)], 0.1); sched.ReduceLROnPlateau(o).step()
o=optim.SGD([R(2)], 0.1); sched.ReduceLROnPlateau(o).step('a')
# LinearLR
o=optim.SGD([R(2)], 0.1); sched.LinearLR(o, start_factor=0)
o=optim.SGD([R(2)], 0.1); sched.LinearLR(o, start_factor=2.0)
o=optim.SGD([R(2)], 0.1); sched.LinearLR(o, end_factor=2.0)
# ConstantLR
o=optim.SGD([R(2)], 0.1); sched.ConstantLR(o, factor=2.0)
o=optim.SGD([R(2)], 0.1); sched.ConstantLR(o, factor=-1.0)
# SequentialLR
o=optim.SGD([R(2)], 0.1); sched.SequentialLR(o, [], [])
o=optim.SGD([R(2)], 0.1); sched.SequentialLR(o, [sched.StepLR(o,1)], [1])
o=optim.SGD([R(2)], 0.1); sched.SequentialLR(o, [sched.StepLR(o,1), sched.StepLR(optim.SGD([R(2)],.1),1)], [1])
# ChainedScheduler
o=optim.SGD([R(2)], 0.1); sched.ChainedScheduler([])
o=optim.SGD([R(2)], 0.1); sched.ChainedScheduler([sched.StepLR(o,1), sched.StepLR(optim.SGD([R(2)],.1),1)])
# LRScheduler
o=optim.SGD([R(2)], 0.1); sched.LRScheduler(o)
# DataLoader
data.DataLoader([1,2,3], batch_size=0)
data.DataLoader([1,2,3], batch_size=None, drop_last=True)
data.DataLoader([1,2,3], shuffle=True, sampler=[0])
data.DataLoader([1,2,3], batch_sampler=[[0]], shuffle=True)
data.DataLoader([1,2,3], num_workers=-1)
data.DataLoader([1,2,3], num_workers='a')
# Dataset
data.Dataset()[0]
len(data.Dataset())
data.Dataset()+data.Dataset()
# TensorDataset
data.TensorDataset(T(2), T(3))
data.TensorDataset(5)
data.TensorDataset([1,2])
data.TensorDataset(T())
data.TensorDataset(T(2))[5]
# Subset
data.Subset([1,2,3], [5])[0]
data.Subset([1,2,3], [0])[3]
data.Subset([1,2,3], [0])['a']
# ConcatDataset
data.ConcatDataset([])
data.ConcatDataset(5)
data.ConcatDataset([[1],[2]])[5]
data.ConcatDataset([[1],[2]])[-3]
# StackDataset
data.StackDataset()
data.StackDataset([1],[1,2])
data.StackDataset([1], a=[1])
# random_split
data.random_split([1,2,3], [1,1])
data.random_split([1,2,3], [0.5,0.6])
data.random_split([1,2,3], 'a')
data.random_split([1,2,3], 5)
data.random_split(5, [1])
# RandomSampler
data.RandomSampler([])
data.RandomSampler([1], replacement='a')
data.RandomSampler(5)
len(data.RandomSampler(5))
# WeightedRandomSampler
data.WeightedRandomSampler([1.0], 0)
data.WeightedRandomSampler([1.0], 1, 'a')
data.WeightedRandomSampler([[1.0]], 1)
data.WeightedRandomSampler('a', 1)
list(data.WeightedRandomSampler([1.0], 2, replacement=False))
list(data.WeightedRandomSampler([0.0], 2))
# BatchSampler
data.BatchSampler([0,1], 0, False)
data.BatchSampler([0,1], 'a', False)
data.BatchSampler([0,1], 1, 'a')
list(data.BatchSampler(5, 1, False))
# SubsetRandomSampler
len(data.SubsetRandomSampler(5))
# Sampler
len(data.Sampler())
list(data.Sampler())
# default_collate
data.default_collate([])
data.default_collate(5)
data.default_collate([{1}])
# clip_grad_norm_
utils.clip_grad_norm_(5, 1.0)
utils.clip_grad_norm_([R(2)], 'a')
# clip_grad_value_
utils.clip_grad_value_(5, 1.0)
# parameters_to_vector
utils.parameters_to_vector([])
utils.parameters_to_vector(5)
# vector_to_parameters
utils.vector_to_parameters(5, [])
utils.vector_to_parameters(T(1), [R(2)])
# pad_sequence
utils.rnn.pad_sequence([])
utils.rnn.pad_sequence(5)
utils.rnn.pad_sequence([T(2,3), T(2,4)])
utils.rnn.pad_sequence([5])
# no_grad
F.no_grad(5, 6)
# autocast
F.autocast('zzz')
F.autocast(5)
F.amp.autocast('cpu', F.bfloat16, True, True, 5)
# GradScaler
F.amp.GradScaler('cpu', growth_factor=0.5)
F.amp.GradScaler('cpu', backoff_factor=2.0)
F.amp.GradScaler('cpu').scale(5)
F.amp.GradScaler('cpu').step(optim.SGD([R(2)], .1))
F.amp.GradScaler('cpu').unscale_(optim.SGD([R(2)], .1))
F.amp.GradScaler('cpu').update()
# gradcheck
AG.gradcheck(lambda x: x*2, R(2))
AG.gradcheck(lambda x: x*2, T(2))
AG.gradcheck(lambda x: x.detach()*2, D(T(2),'float64').requires_grad_())
AG.gradcheck(5, D(T(2),'float64').requires_grad_())
# jacobian
AG.functional.jacobian(lambda x: 5, R(2))
AG.functional.jacobian(lambda x: x*2, 5)
AG.functional.jacobian(lambda x: x.detach(), R(2), strict=True)
# hessian
AG.functional.hessian(lambda x: x*2, R(2))
# vjp
AG.functional.vjp(lambda x: x*2, R(2))
AG.functional.vjp(lambda x: x*2, R(2), T(3))
# jvp
AG.functional.jvp(lambda x: x*2, R(2))
AG.functional.jvp(lambda x: x*2, R(2), T(3))
# hvp
AG.functional.hvp(lambda x: x*2, R(2), T(2))
# functional_call
F.func.functional_call(5, {}, (T(2),))
# checkpoint
F.utils.checkpoint.checkpoint(5, R(2))
F.utils.checkpoint.checkpoint(lambda x: x*2, R(2), use_reentrant=False, zzz=5)
# checkpoint_sequential
F.utils.checkpoint.checkpoint_sequential(5, 2, R(2))
# assert_close
F.testing.assert_close(T(2), T(2)+1)
F.testing.assert_close(T(2), T(3))
F.testing.assert_close(T(2), 5)
F.testing.assert_close(T(2), T(2), rtol=1)
F.testing.assert_close(5, 6)
F.testing.assert_close({'a':1}, {'b':1})
# einsum
F.einsum('ij,jk', T(2,3))
F.einsum('ij', T(2,3), T(2,3))
F.einsum('ij->k', T(2,3))
F.einsum('ijj', T(2,3,4))
F.einsum('ij->ii', T(2,3))
F.einsum('ij,kj->ik', T(2,3), T(2,4))
# isclose
F.isclose(T(2), I(2))
# allclose
F.allclose(T(2), I(2))
F.allclose(T(2), D(T(2),'float64'))
F.allclose(T(2), T(2), rtol=-1)
# equal
F.equal(T(2), 5)
# is_nonzero
F.is_nonzero(T(2))
F.is_nonzero(T(0))
# seed
F.seed(5)
# initial_seed
F.initial_seed(5)
# rand
F.rand()
F.rand(-1)
F.rand(2.5)
F.rand('a')
F.rand(2, dtype=F.int64)
F.rand(2, dtype=F.bool)
# randint
F.randint(5)
F.randint(0, (2,))
F.randint(5, 3, (2,))
F.randint(-5, (2,))
F.randint(0, 5, 2)
# randperm
F.randperm(5, dtype=F.bool)
F.randperm(300, dtype=F.uint8)
F.randperm(1.5)
# normal
F.normal(0, 1)
F.normal(0, 1, 5)
F.normal(T(2), -T(2))
F.normal(T(2), T(3))
F.normal(T(2), -1.0)
F.normal(I(2), 1.0)
# bernoulli
F.bernoulli(I(2))
F.bernoulli(T(2)+1)
F.bernoulli(T(2)*F.nan)
# multinomial
F.multinomial(T(3)*0, 1)
F.multinomial(-T(3), 1)
F.multinomial(T(3), 4)
F.multinomial(T(3), 0)
F.multinomial(I(3), 1)
F.multinomial(T(1,2,3), 1)
# exponential_
T(2).exponential_(-1)
T(2).exponential_(0)
# random_
T(2).random_(5, 3)
T(2).random_(0)
B(2).random_(0, 5)
# bernoulli_
T(2).bernoulli_(2)
# linspace
F.linspace(0, 1)
F.linspace(0, 1, -1)
F.linspace(0, 1, 1.5)
F.linspace('a', 1, 2)
F.linspace(0, 5, 3, dtype=F.bool)
# eye
F.eye(-1)
F.eye(2, -1)
F.eye(1.5)
F.eye('a')
F.eye(2, dtype='a')
# full
F.full((2,), 'a')
F.full((2,), None)
F.full((2,), T(2))
F.full((2,), 1j, dtype=F.float32)
F.full((2,), 300, dtype=F.uint8)
F.full((2,), 2**70)
# full_like
F.full_like(T(2), T(2))
F.full_like(T(2), 'a')
# zeros
F.zeros(T())
F.zeros([2, [3]])
F.zeros(2, 'a')
F.zeros(2.0)
F.zeros((2.0,))
F.zeros(True)
# empty_like
F.empty_like(5)
# softmax
F.softmax(I(2,3), 1)
F.softmax(I(2,3).float(), 1, dtype=F.int64)
F.softmax(B(2,3), 1)
F.softmax(C(2,3), 1)
F.softmax(T(), 1)
# log_softmax
F.log_softmax(I(2,3), 1)
# logsumexp
F.logsumexp(T(2,3))
# lerp
F.lerp(T(2), D(T(2),'float64'), 0.5)
F.lerp(D(T(2),'float64'), T(2), 0.5)
F.lerp(I(2), I(2), 0.5)
F.lerp(T(2), I(2), 0.5)
F.lerp(T(2), T(2), D(T(2),'float64'))
F.lerp(T(2), T(2), I(2))
# argmax
F.argmax(T(0))
F.argmax(T(2,0), 1)
F.argmax(T(2,3), (0,1))
F.argmax(T(2), out=T())
# max
F.max(C(2,3))
F.max(T(0))
F.max(T(2,3), (0,1))
F.max(T(2,0), 1)
F.max(T(2,3), 1.0)
F.max(T(2,3), T(2,3), 1)
# amax
F.amax(C(2,3))
F.amax(T(0))
F.amax(T(2,3), (0,0))
# aminmax
F.aminmax(T(0))
F.aminmax(T(2,3), dim=(0,1))
# prod
F.prod(T(2,3), (0,1))
F.prod(T(2,3), [0])
F.prod(T(2,3), ())
# sum
F.sum(T(2,3), 5)
F.sum(T(2,3), (0,0))
F.sum(T(2,3), 'a')
F.sum(T(2,3), 1.5)
F.sum(T(2,3), dtype='a')
F.sum([1,2])
# mean
F.mean(I(2))
F.mean(B(2))
F.mean(T(2), dtype=F.int64)
F.mean([1.0])
# var
F.var(I(2))
F.var(T(2), 'a')
F.var(T(2), 0, 1)
F.var(T(2), unbiased='a')
F.var(T(2), unbiased=True, correction=1)
# std
F.std(I(2))
F.std(B(2))
# norm
F.norm(I(2))
F.norm(T(2,3), 'zzz')
F.norm(T(2,3), 'fro', (0,0))
F.norm(T(2,3), dtype=F.int64)
F.norm(T(0), F.inf)
F.linalg.norm(T(2,3), 'zzz')
# vector_norm
F.linalg.vector_norm(T(0), F.inf)
F.linalg.vector_norm(I(2))
F.linalg.vector_norm(T(2), 'fro')
# matrix_norm
F.linalg.matrix_norm(T(3))
F.linalg.matrix_norm(T(2,3), 'zzz')
F.linalg.matrix_norm(T(2,3), dim=0)
# cumsum
F.cumsum(T(2,3))
F.cumsum(T(2,3), 5)
F.cumsum(T(2,3), 'a')
F.cumsum(T(2,3), 0, dtype=F.bool)
F.cumsum(T(), 1)
# any
F.any(T(2,3), 5)
F.any(T(2,3), (0,0))
F.any([1])
F.any('a')
F.any(T(2), out=T())
# all
F.all(T(2,3), 'a')
# sort
F.sort(T(2,3), 5)
F.sort(T(2,3), 'a')
F.sort(T(2,3), descending='a')
F.sort(T(), 1)
F.sort(T(2), out=(T(2), T(2)))
# topk
F.topk(T(2,3), 4)
F.topk(T(2,3), -1)
F.topk(T(2,3), 1.5)
F.topk(T(2,3), 'a')
F.topk(T(2,3), 1, 5)
F.topk(T(), 2)
# masked_fill
F.masked_fill(T(2), I(2), 1)
F.masked_fill(T(2), D(I(2),'uint8'), 1)
F.masked_fill(T(2), B(3), 1)
F.masked_fill(T(2), B(2), T(2))
F.masked_fill(T(2), B(2), 'a')
F.masked_fill(I(2), B(2), F.nan)
# masked_select
F.masked_select(T(2), I(2))
F.masked_select(T(2), B(3))
F.masked_select(T(2), [True])
F.masked_select(T(2), B(2), out=I(2))
# masked_scatter
F.masked_scatter(T(2), B(2), T(1))
F.masked_scatter(T(2), B(2), I(2))
F.masked_scatter(T(2), I(2), T(2))
# where
F.where(T(2), T(2), T(2))
F.where(B(2), T(2))
F.where(B(2), T(2), T(3))
F.where(B(2), T(2), 'a')
F.where(True, T(2), T(2))
F.where(B(2), T(2), None)
# nonzero
F.nonzero(5)
# clamp
F.clamp(T(2))
F.clamp(T(2), None, None)
F.clamp(T(2), 'a')
F.clamp(T(2), T(2), 1)
F.clamp(T(2), T(3))
F.clamp(C(2), 0)
# addcmul
F.addcmul(T(2), T(2))
F.addcmul(T(2), T(2), T(3))
F.addcmul(T(2), T(2), T(2), value='a')
F.addcmul(B(2), B(2), B(2))
# addcdiv
F.addcdiv(T(2), T(2), T(3))
# tril
F.tril(T(2))
F.tril(T())
F.tril(T(2,2), 'a')
F.tril(T(2,2), 1.5)
# triu
F.triu(T(2,2), None)
# flip
F.flip(T(2), (0,0))
F.flip(T(2))
F.flip(T(2), 'a')
# roll
F.roll(T(2), 'a')
F.roll(T(2), 1, 5)
F.roll(T(2,3), (1,1), 0)
F.roll(T(2,3), (1,1))
# diag
F.diag(T(1,2,3))
F.diag(T())
# mm
F.mm(T(2,3), T(2,3))
F.mm(T(2,3), I(3,2))
F.mm(B(2,3), B(3,2))
F.mm(T(2,3), 5)
F.mm(T(2,3,4), T(2,3,4))
F.mm(T(2,3), D(T(3,2),'float64'))
# bmm
F.bmm(T(2,3), T(2,3))
F.bmm(T(2,3,4), T(3,4,5))
F.bmm(T(2,3,4), I(2,4,5))
# matmul
F.matmul(T(), T(2))
F.matmul(T(2), T(3))
F.matmul(T(2,3), T(2,3))
F.matmul(T(2,3), I(3,2))
F.matmul(T(2,3), None)
F.matmul(B(2,3), B(3,2))
# dot
F.dot(T(2,2), T(2,2))
F.dot(T(2), I(2))
F.dot(T(2), T(3))
# mv
F.mv(T(2,3), T(2,3))
F.mv(T(2,3), T(2))
# outer
F.outer(T(2,2), T(2))
# addmm
F.addmm(T(2,2), T(2,3), T(2,3))
F.addmm(T(5), T(2,3), T(3,2))
F.addmm(I(2,2), T(2,3), T(3,2))
F.addmm(T(2,2), T(2,3), T(3,2), beta='a')
F.addmm(T(2,2), T(2,3), T(3,2), 1, 2, 3)
# solve
F.linalg.solve(T(2,3), T(2))
F.linalg.solve(F.zeros(2,2), T(2))
F.linalg.solve(F.eye(2), T(3))
F.linalg.solve(F.eye(2), I(2))
F.linalg.solve(F.eye(2), T())
F.linalg.solve(T(2), T(2))
# cholesky
F.linalg.cholesky(T(2,3))
F.linalg.cholesky(-F.eye(2))
F.linalg.cholesky(T(2))
F.linalg.cholesky(F.eye(2)*F.nan)
F.linalg.cholesky(D(F.eye(2),'bfloat16'))
F.cholesky(-F.eye(2))
# inv
F.linalg.inv(F.zeros(2,2))
F.linalg.inv(T(2,3))
# inverse
F.inverse(F.zeros(2,2))
# rfft
F.fft.rfft(T())
F.fft.rfft(T(2), 0)
F.fft.rfft(T(2), -1)
F.fft.rfft(T(2), 1.5)
F.fft.rfft(T(2), 'a')
F.fft.rfft(T(2), dim=5)
# view_as_complex
F.view_as_complex(T(3))
F.view_as_complex(T(2,3))
F.view_as_complex(I(3,2))
# view_as_real
F.view_as_real(T(2))
# imag
F.imag(T(2))
# angle
F.angle('a')
# median
F.median(T(2,0), 1)
F.median(B(2))
F.median(C(2))
# kthvalue
F.kthvalue(T(3), 0)
F.kthvalue(T(3), 4)
F.kthvalue(T(3), 'a')
# unique
F.unique(T(2,3), dim=5)
F.unique(C(3))
# meshgrid
F.meshgrid(T(2,2))
F.meshgrid()
F.meshgrid(T(2), indexing='zzz')
F.meshgrid(T(2), I(2))
# cartesian_prod
F.cartesian_prod(T(2,2))
# repeat_interleave
F.repeat_interleave(T(2), -1)
F.repeat_interleave(T(2), I(3))
F.repeat_interleave(T(2), I(2)-1)
F.repeat_interleave(T(2), 'a')
# tensor_split
F.tensor_split(T(2), 0)
F.tensor_split(T(), 2)
F.tensor_split(T(2), I(2,2))
F.tensor_split(T(2), T())
# trace
F.trace(T(2))
F.trace(T(1,2,3))
# bitwise_and
F.bitwise_and(T(2), T(2))
F.bitwise_and(I(2), 1.5)
# bitwise_not
F.bitwise_not(T(2))
# bitwise_left_shift
F.bitwise_left_shift(T(2), T(2))
# logical_not
F.logical_not('a')
# floor
F.floor(C(2))
# ceil
F.ceil(B(2))
# round
F.round(B(2))
F.round(T(2), decimals='a')
F.round(I(2), decimals=1)
# trunc
F.trunc(C(2))
# frac
F.frac(I(2))
# sign
F.sign(C(2))
# abs
F.abs(B(2))
F.abs([1])
# neg
F.neg(B(2))
# negative
F.negative(B(2))
# square
F.square('a')
# erf
F.erf(C(2))
# erfinv
F.erfinv(C(2))
# lgamma
F.lgamma(C(2))
# relu
F.relu(C(2))
F.relu()
F.relu(5)
F.relu(None)
F.relu('a')
F.relu([1.0])
# copysign
F.copysign(T(2), 'a')
# atan2
F.atan2(T(2), 1.0)
# maximum
F.maximum(T(2), 1.0)
# remainder
F.remainder(C(2), C(2))
F.remainder(T(2), 'a')
F.remainder(5, 2)
# pow
F.pow(T(2), 'a')
F.pow(2, 3)
F.pow('a', T(2))
# mul
F.mul('a', T(2))
# add
F.add(T(2), 1, alpha='a')
F.add(I(2), 1, alpha=1.5)
F.add(T(2), T(2), out=I(2))
F.add(R(2), T(2), out=T(2))
F.add(T(2), T(2), out=[T(2)])
F.add(T(2), T(2), out=(T(2),))
# sub
F.sub(B(2), B(2))
# rsub
F.rsub(B(2), 1)
F.rsub(T(2), 'a')
# true_divide
F.true_divide(T(2), 'a')
# eq
F.eq(T(2), 'a')
F.eq(T(2), T(3))
# lt
F.lt(C(2), C(2))
F.lt(T(2), 1j)
# count_nonzero
F.count_nonzero(T(2), 5)
# diff
F.diff(T())
F.diff(T(2), -1)
F.diff(T(2), n=1, prepend=T(2,2))
# bitwise_or
F.bitwise_or(B(2), 1.5)
# conv2d
F.conv2d(T(1,1,3,3), T(1,1,2,2), stride='a')
# pad
fn.pad(T(2), (1,1,1,1))
fn.pad(T(2), 'a')
fn.pad(T(2), (1,1), 'zzz')
fn.pad(T(2), (1,1), 'reflect')
fn.pad(T(1,2,3), (5,5), 'reflect')
fn.pad(T(1,2,3), (-5,0))
# PixelShuffle
nn.PixelShuffle(2)(T(1,3,4,4))
nn.PixelShuffle(0)(T(1,4,4,4))
# CosineSimilarity
nn.CosineSimilarity()(T(2,3), T(2,4))
# PairwiseDistance
nn.PairwiseDistance()(T(2,3), T(2,4))
# Bilinear
nn.Bilinear(3,4,5)(T(2,3), T(2,3))
# TransformerEncoderLayer
nn.TransformerEncoderLayer(8, 3)
nn.TransformerEncoderLayer(8, 2)(T(3,1,4))
nn.TransformerEncoderLayer(8, 2, activation='zzz')
# TransformerEncoder
nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2), 'a')
# exp
F.exp(5)
F.exp(2.0)
# sqrt
F.sqrt(4)
# numel
F.numel(5)
"""


def probe(torch, P):
    importlib.import_module(torch.__name__ + ".utils.data")
    importlib.import_module(torch.__name__ + ".utils.dlpack")

    def T(*sizes):
        return ((torch.arange(int(np.prod(sizes))) % 7 + 1) / 8).reshape(sizes)

    names = {
        "F": torch, "fn": torch.nn.functional, "nn": torch.nn, "init": torch.nn.init, "utils": torch.nn.utils,
        "np": np, "io": io, "copy": copy, "pickle": pickle,
        "optim": torch.optim, "sched": torch.optim.lr_scheduler, "data": torch.utils.data, "AG": torch.autograd,
        "T": T, "R": lambda *s: T(*s).requires_grad_(), "D": lambda t, d: t.to(getattr(torch, d)),
        "I": lambda *s: torch.zeros(s, dtype=torch.int64), "B": lambda *s: torch.ones(s, dtype=torch.bool),
        "C": lambda *s: torch.ones(s, dtype=torch.complex64),
    }  # fmt: skip

    def outcome(call):
        try:
            exec(call, dict(names))
        except Exception as e:
            return type(e).__name__.lstrip("_")
        return "no error"

    for group in CALLS.strip().split("# ")[1:]:
        subject, *calls = group.strip().splitlines()

        def found(calls=calls):
            return {call: outcome(call) for call in calls}

        found.__name__ = subject.replace(" ", "_")
        P(found)
