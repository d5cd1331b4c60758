// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_fp16.h>
namespace cg = cooperative_groups;
extern "C" __global__ void vector_add(const float*a,const float*b,float*c,int n){int i=blockIdx.x*blockDim.x+threadIdx.x; if(i<n) c[i]=a[i]+b[i];}
// tiled matrix multiplication
template<int B> __device__ void mm(float*C,const float*A,const float*Bm,int wA,int wB){
  int bx=blockIdx.x,by=blockIdx.y,tx=threadIdx.x,ty=threadIdx.y; int aB=wA*B*by,aE=aB+wA-1; float s=0;
  for(int a=aB,b=B*bx;a<=aE;a+=B,b+=B*wB){ __shared__ float As[B][B]; __shared__ float Bs[B][B];
    As[ty][tx]=A[a+wA*ty+tx]; Bs[ty][tx]=Bm[b+wB*ty+tx]; __syncthreads();
#pragma unroll
    for(int k=0;k<B;k++) s+=As[ty][k]*Bs[k][tx]; __syncthreads(); }
  C[wB*B*by+B*bx+wB*ty+tx]=s; }
extern "C" __global__ void matmul16(float*C,const float*A,const float*B,int wA,int wB){mm<16>(C,A,B,wA,wB);}
__device__ inline float cnd(float d){ const float A1=0.31938153f,A2=-0.356563782f,A3=1.781477937f,A4=-1.821255978f,A5=1.330274429f,R=0.39894228040143267793994605993438f;
 float K=__fdividef(1.0f,(1.0f+0.2316419f*fabsf(d))); float c=R*__expf(-0.5f*d*d)*(K*(A1+K*(A2+K*(A3+K*(A4+K*A5))))); if(d>0)c=1.0f-c; return c;}
extern "C" __global__ void black_scholes(float*call,float*put,const float*S_,const float*X_,const float*T_,float R,float V,int n){
 int i=blockIdx.x*blockDim.x+threadIdx.x; if(i>=n)return; float S=S_[i],X=X_[i],T=T_[i];
 float sq=sqrtf(T); float d1=(logf(S/X)+(R+0.5f*V*V)*T)/(V*sq); float d2=d1-V*sq; float c1=cnd(d1),c2=cnd(d2); float e=expf(-R*T); call[i]=S*c1-X*e*c2; put[i]=X*e*(1.0f-c2)-S*(1.0f-c1);}
extern "C" __global__ void block_reduce(const int*in,int*out,int n){ __shared__ int sm[32]; int i=blockIdx.x*blockDim.x+threadIdx.x; int v=i<n?in[i]:0;
 for(int o=16;o;o>>=1) v+=__shfl_down_sync(~0u,v,o); if((threadIdx.x&31)==0) sm[threadIdx.x>>5]=v; __syncthreads();
 if(threadIdx.x<32){ v=threadIdx.x<blockDim.x/32?sm[threadIdx.x]:0; for(int o=16;o;o>>=1) v+=__shfl_xor_sync(~0u,v,o); if(threadIdx.x==0) atomicAdd(out,v);} }
extern "C" __global__ void collatz(const int*in,int*out,int n){int i=blockIdx.x*blockDim.x+threadIdx.x; if(i>=n)return; unsigned v=in[i]; int c=0; while(v!=1){ if(v&1) v=3*v+1; else v>>=1; c++; if(c>1000)break;} out[i]=c;}
extern "C" __global__ void grid_sync(int*a,int*out,int rounds){ auto g=cg::this_grid(); int t=g.thread_rank(), n=g.size(); for(int r=0;r<rounds;r++){ int v=a[(t+1)%n]; g.sync(); a[t]=v+1; g.sync(); } if(t==0) out[0]=n; }
extern "C" __global__ void lock(int*l,int*count){ bool done=false; while(!done){ if(atomicCAS(l,0,1)==0){ *(volatile int*)count=*(volatile int*)count+1; __threadfence(); atomicExch(l,0); done=true; } } }
extern "C" __global__ void spinlock(int*l,int*count){ while(atomicCAS(l,0,1)!=0); *(volatile int*)count=*(volatile int*)count+1; __threadfence(); atomicExch(l,0); }
__device__ __noinline__ double poly(double x,int n){ double r=0; for(int i=0;i<n;i++) r=r*x+i; return r; }
__device__ double (*table[2])(double,int)={poly,nullptr};
extern "C" __global__ void calls(double*o){ int t=threadIdx.x; double v = (t&1)? poly(0.5,t): sin((double)t)*cos(t*1e6)+exp(-t*0.1)+pow(1.1,t); o[t]=v; if(t>1000) o[t]=table[t&1](v,3);}
__constant__ float coef[4]={1,2,3,4}; __device__ int counter=7; __device__ int*cp=&counter;
extern "C" __global__ void constants(float*o,int*p){ extern __shared__ float dyn[]; int t=threadIdx.x; dyn[t]=coef[t&3]*t; __syncthreads(); o[t]=dyn[blockDim.x-1-t]; if(t==0) p[0]=atomicAdd(cp,5); }
extern "C" __global__ void halves(__half*a,float*o){int t=threadIdx.x; __half2 x=__halves2half2(a[t],a[t]); x=__hfma2(x,x,__float2half2_rn(1.5f)); o[t]=__low2float(x)+__half2float(hexp(a[t]))+__half2float(__hmul(a[t],a[t]));}
extern "C" __global__ void local_array(int*o,int n){ int a[64]; int t=threadIdx.x; for(int i=0;i<64;i++) a[i]=i*t; int s=0; for(int i=0;i<n;i++) s+=a[(i*7+t)&63]; o[t]=s; }
struct Big{int v[10];};
extern "C" __global__ void by_value(Big b,int*o){ o[threadIdx.x]=b.v[threadIdx.x%10]; }
extern "C" __global__ void out_of_bounds(int*p){ p[threadIdx.x*1000000ull]=1; }
extern "C" __global__ void switcher(int*o){ int t=threadIdx.x; int v; switch(t%9){case 0:v=11;break;case 1:v=t*3;break;case 2:v=t^77;break;case 3:v=t<<3;break;case 4:v=t/3;break;case 5:v=-t;break;case 6:v=t%5;break;case 7:v=t|64;break;default:v=1;} o[t]=v;}
extern "C" __global__ void tiles(int*o){ auto b=cg::this_thread_block(); auto t=cg::tiled_partition<8>(b); int v=cg::reduce(t,(int)threadIdx.x,cg::plus<int>()); o[threadIdx.x]=v; auto c=cg::coalesced_threads(); if(threadIdx.x&1){auto d=cg::coalesced_threads(); o[threadIdx.x]+=d.size()*1000;} b.sync();}
